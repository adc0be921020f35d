// Residual networks (He et al. 2015) as torchvision's resnet18 to resnet152 (with the stride on the
// 3x3 convolution of a bottleneck block) and resnext50_32x4d (Xie et al. 2016).
#pragma once
#include <array>

#include "models/family.h"

namespace bv {

struct ResnetConfig {
  bool bottleneck;            // blocks of 1x1, 3x3, 1x1 instead of two 3x3
  std::array<int, 4> layers;  // blocks per stage
  int groups = 1, width_per_group = 64;
};

Graph build_resnet(const ResnetConfig&, const GraphOptions&, const InputShape&, DType);

}  // namespace bv

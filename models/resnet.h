// Residual networks (He et al. 2015) as torchvision's resnet34, resnet50 (with the stride on the
// 3x3 convolution) and resnext50_32x4d (Xie et al. 2016).
#pragma once
#include <array>

#include "models/graph/nodes.h"

namespace bv {

struct ResnetConfig {
  bool bottleneck;            // blocks of 1x1, 3x3, 1x1 instead of two 3x3
  std::array<int, 4> layers;  // blocks per stage
  int groups = 1, width_per_group = 64;
  int classes;
  bool zero_init_last = false;  // each block's last batch norm starts at 0 (Goyal et al. 2017)
  int parts = 1;                // processes over which the batch norms compute their statistics
  float drop_rate = 0;          // dropout before the head
  float label_smoothing = 0;
  int augment_layers = 0;  // ImageOps of each training image
};

struct Resnet {
  Graph graph;
  Tensor logits, loss;
};
Resnet build_resnet(const ResnetConfig&, const InputShape&, DType);

}  // namespace bv

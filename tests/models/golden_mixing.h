// The reference of tests/golden/training/make_mixing.py, and its images and logits.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "kernels/types.h"

namespace bv::test::golden {

struct MixedBatch {
  std::string options;
  float smoothing;
  std::vector<Mix> mixes;
  std::vector<uint8_t> images;  // [B, size, size, 3]
  std::vector<double> loss;     // [B]
};
struct MixingReference {
  int size, classes;
  std::vector<int> labels;      // [B]
  std::vector<uint8_t> images;  // [B, size, size, 3]
  std::vector<float> logits;    // [B, classes]
  std::vector<MixedBatch> batches;
};
std::optional<MixingReference> mixing();  // empty outside the project's folder

}  // namespace bv::test::golden

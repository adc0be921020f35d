// A small ViT on the cpu device with its batch, for tests of graph, plan, stages and trainer.
#pragma once
#include <memory>
#include <vector>

#include "engine/model/model_chunk.h"
#include "kernels/cpu/backend.h"
#include "kernels/philox.h"
#include "models/vit.h"
#include "tests/square_input.h"

namespace bv::test {

inline constexpr int small_batch = 3, small_size = 12, small_patch = 4, small_classes = 5;

inline Graph small_vit(int depth, GraphOptions options = {}, bool distilled = false) {
  options.classes = small_classes;
  return build_vit({.embed_dim = 24, .depth = depth, .heads = 3, .distilled = distilled}, options,
                   square_input(small_batch, small_size, small_patch), DType::fp32);
}

// An optimizer with PyTorch's defaults.
inline OptimizerUpdate numbers_of(OptimizerKind kind, float weight_decay = 0) {
  return {.beta1 = .9, .beta2 = .999, .eps = 1e-8f, .weight_decay = weight_decay, .kind = kind};
}

// Pixels and labels of micro-batch `number`.
struct SmallBatch {
  std::vector<uint8_t> images;
  std::vector<Crop> crops = std::vector<Crop>(small_batch);
  std::vector<int32_t> labels;
  explicit SmallBatch(uint32_t number) {
    for (uint32_t i = 0; i < small_batch * small_size * small_size * 3; ++i)
      images.push_back(static_cast<uint8_t>(philox(7, i, number, 0, random_data).at[0]));
    for (uint32_t i = 0; i < small_batch; ++i)
      labels.push_back(static_cast<int32_t>((3 * number + 2 * i) % small_classes));
  }
};

}  // namespace bv::test

// Square images, normalised from [0, 1] to [-1, 1].
#pragma once
#include "models/graph/nodes.h"

namespace bv::test {

inline InputShape square_input(int batch, int size, int patch = 1) {
  return {.B = batch,
          .height = size,
          .width = size,
          .size = size,
          .patch = patch,
          .mean = {.5f, .5f, .5f},
          .std = {.5f, .5f, .5f}};
}

}  // namespace bv::test

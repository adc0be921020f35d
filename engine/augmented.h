// Training images as the model gets them, but for mixing and normalising.
#pragma once
#include <cstdint>
#include <vector>

#include "data/loader.h"
#include "kernels/backend.h"

namespace bv {

// The first `rows` images of a batch: [rows, size, size, 3]. layers: ImageOps of each. Waits for the
// device.
std::vector<uint8_t> augmented_images(Backend&, const Batch&, int rows, int layers, int size);

}  // namespace bv

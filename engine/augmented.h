// Training images as the model gets them, but for mixing and normalising.
#pragma once
#include <cstdint>
#include <vector>

#include "data/loader.h"
#include "engine/setup/setup.h"

namespace bv {

// The first `rows` images of a batch: [rows, size, size, 3]. layers: ImageOps of each. Waits for the
// device.
std::vector<uint8_t> augmented_images(Backend&, const Batch&, int rows, int layers, int size);

// The first `count` (with mixing an even number) of the run's first epoch, prepared once more.
std::vector<uint8_t> first_training_images(Backend&, const Setup&, int count);

}  // namespace bv

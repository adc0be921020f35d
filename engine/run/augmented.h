// Training images as the model sees them, before mixing and normalising.
#pragma once
#include <cstdint>
#include <vector>

#include "data/loader.h"
#include "engine/setup/setup.h"

namespace bv {

// The first `rows` images of a batch: [rows, size, size, 3]. layers: ImageOps per image. Waits for
// the device.
std::vector<uint8_t> augmented_images(Backend&, const Batch&, int rows, int layers, int size);

// The first `count` images of the run's first epoch, from a new loader. count: must be even if
// images are mixed in pairs.
std::vector<uint8_t> first_training_images(Backend&, const Setup&, int count);

}  // namespace bv

// Training images as the model gets them, before mixing and normalising.
#pragma once
#include <cstdint>
#include <vector>

#include "data/loader.h"
#include "engine/setup/setup.h"

namespace bv {

// The first `rows` images of a batch: [rows, size, size, 3]. layers: ImageOps of each image. Waits
// for the device.
std::vector<uint8_t> augmented_images(Backend&, const Batch&, int rows, int layers, int size);

// The first `count` (even with mixing) of the run's first epoch, prepared by a loader of their own.
std::vector<uint8_t> first_training_images(Backend&, const Setup&, int count);

}  // namespace bv

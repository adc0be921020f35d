// Random choice of the part of an image that the model sees. Every choice is a function of (seed,
// epoch, the image's index in the data set), whatever process or thread makes it.
#pragma once
#include <cstdint>

#include "data/resize.h"
#include "kernels/kernels.h"

namespace bv {

struct AugmentKey {
  uint64_t seed;
  uint32_t epoch, index;
};

// RandomResizedCrop (Szegedy et al. 2015) with torchvision's numbers.
Box random_resized_crop(const AugmentKey&, int height, int width);

// The shorter side that an image needs so that no such crop is enlarged.
int min_side_for_random_crop(int image_size);

// The middle square; resizing it equals "short side to image_size, centre crop".
Box centre_square(int height, int width);

bool random_flip(const AugmentKey&);

// Pad by `padding` black pixels, crop to the original size, flip: done on the device.
Crop random_padded_crop(const AugmentKey&, int padding);

}  // namespace bv

// Which part of a picture the model sees. Every choice is a function of (seed, epoch, the image's
// index in the data set), whatever process or thread makes it.
#pragma once
#include <cstdint>

#include "data/resize.h"
#include "kernels/kernels.h"

namespace bv {

struct AugmentKey {
  uint64_t seed;
  uint32_t epoch, index;
};

// RandomResizedCrop (Szegedy et al. 2015) with torchvision's numbers: 8-100% of the area, aspect
// 3/4-4/3, ten tries, else the middle.
Box random_resized_crop(const AugmentKey&, int height, int width);

// Shorter side below which a picture may be too small for such a crop: the smallest one's shorter
// side is sqrt(0.08 * 3/4) of the picture's.
int min_side_for_random_crop(int image_size);

// The middle square, which resized is "short side to image_size, centre crop".
Box centre_square(int height, int width);

bool random_flip(const AugmentKey&);

// Padded by `padding` black pixels all around, cropped to the old size, flipped: for the device.
Crop random_padded_crop(const AugmentKey&, int padding);

}  // namespace bv

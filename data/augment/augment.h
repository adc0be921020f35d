// The part of an image that the model sees. Every random choice is a function of (seed, epoch, the
// image's index in the data set), independent of process and thread.
#pragma once
#include <array>
#include <cstdint>

#include "data/image/resize.h"
#include "kernels/types.h"

namespace bv {

struct AugmentKey {
  uint64_t seed;
  uint32_t epoch, index;
};

enum class TrainCrop : uint8_t { random_resized, padded, pad_if_needed, none };
enum class CropMode : uint8_t { center, squash, border, pad };

struct Cropping {
  TrainCrop train = TrainCrop::none;
  std::array<double, 2> scale = {0.08, 1}, ratio = {3.0 / 4, 4.0 / 3};  // of random_resized
  int padding = 4;                                                      // of padded
  double hflip = 0, vflip = 0;                                          // probabilities
  CropMode mode = CropMode::center;  // in evaluation, and in training with padded or none
  double pct = 1;
  Interpolation interpolation = Interpolation::bilinear;
};

// RandomResizedCrop (Szegedy et al. 2015) with torchvision's defaults.
Box random_resized_crop(const AugmentKey&, int height, int width, const Cropping& = {});

// The box `from` of an image is resized to [height, width] and placed at (top, left) of the result,
// whose remaining pixels are a frame.
struct Placement {
  Box from;
  int top, left, height, width;
};
// timm's evaluation crop: resizes to floor(size / pct) pixels, then crops the centre. `center`
// resizes the shorter side to this size, `squash` both, `border` the longer; `pad` doesn't resize.
Placement centre_crop(int height, int width, int size, const Cropping& = {});

// Origin of a window of `size` pixels in an image with a black frame. Its width on each side is
// `padding` for padded, and max(0, size - the image's side) for pad_if_needed.
struct Window {
  int top, left;
};
Window random_window(const AugmentKey&, int height, int width, int size, const Cropping&);

// Draws crop.flip and crop.upside_down.
void random_flips(const AugmentKey&, const Cropping&, Crop&);

}  // namespace bv

// Augmentation of a training image after its crop and flip: a policy's operations, colour jitter
// and erasing, in this order, drawn as in torchvision, timm and DALI. Every choice is a function
// of (seed, epoch, the image's index in the data set), independent of process and thread.
#pragma once
#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "data/augment/augment.h"

namespace bv {

enum class Policy : uint8_t { none, ra, ra_dali, ta_wide, cifar10, imagenet };

struct Augmentation {
  Policy policy = Policy::none;
  int ra_ops = 2, ra_magnitude = 9;     // magnitude: ra 0-30, ra_dali 0-10
  std::array<double, 4> jitter{};       // of brightness, contrast, saturation and hue; 0: none
  double erase = 0;                     // the probability
  std::array<uint8_t, 3> mean_color{};  // fills the erased box

  int layers() const;  // maximum number of operations per image
};

enum class Operation : uint8_t {
  identity,
  shear_x,
  shear_y,
  translate_x,
  translate_y,
  rotate,
  brightness,
  color,
  contrast,
  sharpness,
  posterize,
  solarize,
  autocontrast,
  equalize,
  invert,
  solarize_add,
  cutout,
  hue,
  erase,
};
std::string_view name_of(
    Operation);  // torchvision's names, ShearX .. Invert, and SolarizeAdd, Cutout, Hue, Erase

struct DrawnOperation {
  Operation operation;
  // Signed, in the units of torchvision's _apply_op. SolarizeAdd: the value added; Cutout: half
  // the side; Hue: fraction of a turn; 0 for operations without a magnitude.
  double magnitude = 0;
  Box box = {};  // Cutout, Erase: the overwritten part, inside the image
};

// Draws at most layers() operations; Identity is left out.
std::vector<DrawnOperation> draw_operations(const Augmentation&, const AugmentKey&, int size);

// The device's form of a drawn operation, for an image of size x size.
ImageOp image_op(const Augmentation&, const DrawnOperation&, int size);

}  // namespace bv

// Augmentation of a training image after its crop and flip: a policy's operations, colour jitter
// and erasing, in this order, drawn as torchvision and timm draw them. Every choice is a function
// of (seed, epoch, the image's index in the data set), whatever process or thread makes it.
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
  int ra_ops = 2, ra_magnitude = 9;     // ra: of 30; ra_dali: of 10
  std::array<double, 4> jitter{};       // of brightness, contrast, saturation and hue; 0: none
  double erase = 0;                     // the probability
  std::array<uint8_t, 3> mean_color{};  // of the erased box

  int layers() const;  // the most operations that an image gets
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
    Operation);  // torchvision's: ShearX .. Invert; SolarizeAdd, Cutout, Hue, Erase

struct DrawnOperation {
  Operation operation;
  // In units of torchvision's _apply_op, with the sign; SolarizeAdd: the value added; Cutout: half
  // its side; Hue: fraction of a turn; 0 if the operation takes none.
  double magnitude = 0;
  Box box = {};  // Cutout, Erase: the overwritten part, inside the image
};

// At most layers() of them, Identity left out.
std::vector<DrawnOperation> draw_operations(const Augmentation&, const AugmentKey&, int size);

// The device's form of a drawn operation, for an image of size x size.
ImageOp image_op(const Augmentation&, const DrawnOperation&, int size);

}  // namespace bv

// Operations on images, before the first layer. kernels/kernels.h says how to read them.
#pragma once
#include <cstddef>
#include <cstdint>

#include "kernels/arguments.h"
#include "kernels/types.h"

namespace bv {

// Converts pixels to normalised patches, the input of a ViT's first matrix product:
//   out[b, gy * (size/patch) + gx, (c * patch + py) * patch + px]
//     = (pixel(b, gy * patch + py, gx * patch + px, c) / 255 - mean[c]) / std[c]
// with pixels selected by Crop. Pixels outside the stored image are 0 before normalisation, like
// the padding of torchvision's RandomCrop. In mixed images (Mix, kernels/types.h) a pixel is
//   pixel(b ^ 1) in the box;  without a box  lambda pixel(b) + (1 - lambda) pixel(b ^ 1), rounded
struct InputShape {
  int B, height, width;   // of the stored images
  int size, patch;        // of the result
  float mean[3], std[3];  // of pixels in 0-1
};

struct InputPatches {
  void* out;              // [B, (size/patch)^2, 3*patch*patch] dtype  =
  const uint8_t* images;  // [B, height, width, 3]
  const Crop* crops;      // [B]; null: images of height and width `size` as they are
  const Mix* mixes;       // [B], B even; null: nothing is mixed
  InputShape shape;
  DType dtype;
  void describe(Arguments&) const;
};

// Applies one ImageOp (kernels/types.h) to each image, in integer arithmetic except for hue.
struct AugmentShape {
  int B, height, width;  // of the stored images
  int size;              // of the result
  int layer, layers;     // which of the image's operations runs; how many it has
};

struct AugmentImages {
  uint8_t* out;           // [B, size, size, 3]  =
  const uint8_t* images;  // [B, height, width, 3]
  const Crop* crops;      // [B], applied first; null: as in InputPatches
  const ImageOp* ops;     // [B, layers]
  AugmentShape shape;
  void describe(Arguments&) const;
};

}  // namespace bv

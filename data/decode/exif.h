// The orientation that a camera writes beside the pixels, and its undoing.
#pragma once
#include <cstdint>
#include <span>

#include "data/dataset.h"

namespace bv {

// The Orientation tag (1-8) of an Exif block (a TIFF file without picture); 1 where there is none
// or the block is damaged: a picture is not worth less for its metadata.
int exif_orientation(std::span<const uint8_t> tiff);

// Turns and mirrors stored pixels so that the picture stands upright.
Image upright(Image stored, int orientation);

}  // namespace bv

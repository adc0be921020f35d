// The orientation that a camera records, and how to undo it.
#pragma once
#include <cstdint>
#include <span>

#include "data/dataset.h"

namespace bv {

// The Orientation tag (1-8) of an Exif block (a TIFF file without pixels); 1 if absent or damaged.
int exif_orientation(std::span<const uint8_t> tiff);

Image upright(Image stored, int orientation);

}  // namespace bv

// stb_image, with the checks that it leaves to its caller: truncated files, checksums, memory.
#pragma once
#include <cstdint>
#include <span>

#include "data/dataset.h"

namespace bv {

// PNG, BMP, GIF (first image), PPM and PGM, upright. Throws BadImage, also for any other format.
Image decode_stb(std::span<const uint8_t> file);

// Walks a PNG's chunks: sizes, checksums, end. Returns its Exif orientation. Throws BadImage.
int inspect_png(std::span<const uint8_t> file);

}  // namespace bv

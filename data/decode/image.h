// Helpers of decode_image (data/dataset.h) that the formats share.
#pragma once
#include <cstdint>
#include <span>

#include "data/dataset.h"

namespace bv {

// Throws BadImage if a header claims no pixels or more than any photo has, before anything of that
// size is allocated.
void check_image_size(int64_t width, int64_t height);

// 1 (grey), 2 (grey, alpha), 3 or 4 (RGB, alpha) channels to RGB, over white.
Image to_rgb(const uint8_t* pixels, int width, int height, int channels);

// One pixel as Adobe stores CMYK in JPEG: inverted, so 255 is no ink.
inline void inverted_cmyk_to_rgb(const uint8_t* cmyk, uint8_t* rgb) {
  for (int c = 0; c < 3; ++c) rgb[c] = static_cast<uint8_t>((cmyk[c] * cmyk[3] + 127) / 255);
}

}  // namespace bv

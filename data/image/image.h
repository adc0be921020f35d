// Images, and parts of them that are decoded at the resolution needed.
#pragma once
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <utility>
#include <vector>

namespace bv {

// 8-bit RGB.
struct Image {
  int height = 0, width = 0;
  std::vector<uint8_t> pixels;  // [height, width, 3]
};
inline Image black_image(int height, int width) {
  return {height, width, std::vector<uint8_t>(3 * size_t(height) * width)};
}

// A part of an image, in pixels.
struct Box {
  double top = 0, left = 0, height = 0, width = 0;
};

// A part in whole pixels.
struct Region {
  int top = 0, left = 0, height = 0, width = 0;
  bool operator==(const Region&) const = default;
};

// The part of an image to decode, possibly `shrink` times smaller.
struct DecodeRequest {
  Box part;
  double shrink = 1;
};
inline DecodeRequest whole_image(int height, int width, double shrink = 1) {
  return {.part = {.height = double(height), .width = double(width)}, .shrink = shrink};
}
// Called with an image's upright size before anything is decoded. Must be idempotent, as it may be
// called twice.
using RequestFn = std::function<DecodeRequest(int height, int width)>;

// A part of an image decoded at dct_scale/8 of its size. A pixel's position in the image at that
// size, and its value, don't depend on which part is decoded.
struct View {
  Image pixels;
  Region at;                            // of the pixels, in the whole image at that size
  int height = 0, width = 0;            // of the whole image at that size
  int full_height = 0, full_width = 0;  // of the image
  int dct_scale = 8;
  bool fixed = true;         // can only be decoded at full size
  double top = 0, left = 0;  // where the image begins within its first pixel

  // Converts a box in full-size pixels to pixels at that size.
  Box scaled(const Box& b) const {
    const double scale = dct_scale / 8.0;
    return {top + b.top * scale, left + b.left * scale, b.height * scale, b.width * scale};
  }
};
// The view of a fully decoded image: calls `choose` with its size, but holds the whole image.
inline View whole_view(Image image, const RequestFn& choose) {
  const int height = image.height, width = image.width;
  choose(height, width);
  return {.pixels = std::move(image),
          .at = {.height = height, .width = width},
          .height = height,
          .width = width,
          .full_height = height,
          .full_width = width};
}

// The dct_scale for an image that may be `shrink` times smaller. libjpeg supports every dct_scale,
// but has fast inverse DCTs only for these: 3/8 takes longer than 4/8, 5/8 than 8/8.
inline int dct_scale_for(double shrink) {
  for (const int dct_scale : {1, 2, 4})
    if (dct_scale * shrink >= 8) return dct_scale;
  return 8;
}

// An image that can't be read; what() is the reason without the path.
struct BadImage : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace bv

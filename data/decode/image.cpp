#include <cstring>
#include <string>

#include "data/decode/decode.h"

namespace bv {

void check_image_size(int64_t width, int64_t height, size_t file_bytes) {
  constexpr int64_t max_side = 1 << 15, max_pixels = int64_t{1} << 27;
  // An image of a single colour takes a byte per 512 pixels as JPEG, per 344 as PNG of 8-bit RGB.
  // Any file may claim 16 million pixels, which cost little.
  constexpr int64_t any_file = 1 << 24, pixels_per_byte = 1024;
  if (width < 1 || height < 1) throw BadImage("the image has no pixels");
  const auto claims = [&] {
    return "the image claims " + std::to_string(width) + "x" + std::to_string(height) + " pixels";
  };
  if (width > max_side || height > max_side || width * height > max_pixels)
    throw BadImage(claims() + ", more than 32768 per side or 134 million");
  if (width * height > any_file + pixels_per_byte * static_cast<int64_t>(file_bytes))
    throw BadImage(claims() + ", too many for a file of " + std::to_string(file_bytes) + " bytes");
}

std::unique_lock<std::mutex> wait_if_large(int64_t bytes) {
  constexpr int64_t large = int64_t{256} << 20;  // RGB of 24 million pixels takes less
  static std::mutex one_at_a_time;
  return bytes > large ? std::unique_lock(one_at_a_time) : std::unique_lock<std::mutex>();
}

Image to_rgb(const uint8_t* pixels, int width, int height, int channels) {
  const size_t count = size_t(width) * height;
  if (channels == 3) return {height, width, {pixels, pixels + 3 * count}};
  Image image = black_image(height, width);
  const bool grey = channels <= 2, alpha = channels % 2 == 0;
  uint8_t* out = image.pixels.data();
  for (size_t i = 0; i < count; ++i, pixels += channels, out += 3) {
    const int a = alpha ? pixels[channels - 1] : 255;
    for (int c = 0; c < 3; ++c)
      out[c] = static_cast<uint8_t>((pixels[grey ? 0 : c] * a + 255 * (255 - a) + 127) / 255);
  }
  return image;
}

Orientation orientation_of(int orientation) {
  if (orientation < 1 || orientation > 8) orientation = 1;
  constexpr bool flip_y[] = {0, 0, 1, 1, 0, 0, 1, 1}, flip_x[] = {0, 1, 1, 0, 0, 1, 1, 0};
  return {orientation >= 5, flip_y[orientation - 1], flip_x[orientation - 1]};
}

Image upright(Image stored, int orientation) {
  const auto [transpose, flip_y, flip_x] = orientation_of(orientation);
  if (!transpose && !flip_y && !flip_x) return stored;
  Image out = transpose ? black_image(stored.width, stored.height)
                        : black_image(stored.height, stored.width);
  uint8_t* to = out.pixels.data();
  for (int y = 0; y < out.height; ++y) {
    const int sy = flip_y ? out.height - 1 - y : y;
    for (int x = 0; x < out.width; ++x, to += 3) {
      const int sx = flip_x ? out.width - 1 - x : x;
      const size_t row = transpose ? sx : sy, column = transpose ? sy : sx;
      std::memcpy(to, &stored.pixels[(row * stored.width + column) * 3], 3);
    }
  }
  return out;
}

}  // namespace bv

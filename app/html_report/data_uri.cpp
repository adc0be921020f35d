#include "app/html_report/data_uri.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "data/image/resize.h"
#include "engine/files/png.h"

namespace bv {
namespace {

std::string base64(std::span<const std::byte> bytes) {
  constexpr const char* letters =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t three = 0;
    const size_t left = std::min<size_t>(3, bytes.size() - i);
    for (size_t k = 0; k < 3; ++k)
      three = three << 8 | (k < left ? std::to_integer<uint32_t>(bytes[i + k]) : 0);
    for (size_t k = 0; k < 4; ++k) text += k <= left ? letters[three >> (18 - 6 * k) & 63] : '=';
  }
  return text;
}

Image scaled_down(const Image& image, int most) {
  const double scale = double(most) / std::max(image.height, image.width);
  const auto side = [&](int pixels) {
    return std::max(1, static_cast<int>(std::lround(pixels * scale)));
  };
  Image small = black_image(side(image.height), side(image.width));
  Resizer().run(image, {0, 0, double(image.height), double(image.width)}, small.height, small.width,
                small.pixels.data());
  return small;
}

// Each pixel becomes a square.
Image enlarged(const Image& image, int zoom) {
  Image large = black_image(zoom * image.height, zoom * image.width);
  for (int y = 0; y < large.height; ++y)
    for (int x = 0; x < large.width; ++x)
      std::copy_n(&image.pixels[3 * (size_t(y / zoom) * image.width + x / zoom)], 3,
                  &large.pixels[3 * (size_t(y) * large.width + x)]);
  return large;
}

}  // namespace

std::string data_uri(const Image& image, int most) {
  const int side = std::max(image.height, image.width);
  if (side > most) return data_uri(scaled_down(image, most), most);
  if (2 * side <= most) return data_uri(enlarged(image, most / side), most);
  return "data:image/png;base64," +
         base64(encode_png(image.pixels.data(), image.height, image.width));
}

}  // namespace bv

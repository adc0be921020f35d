#include <cstring>

#include "data/decode/decode.h"

namespace bv {
namespace {

// Reads numbers of either byte order; 0 beyond the end.
struct TiffReader {
  std::span<const uint8_t> bytes;
  bool big_endian;

  uint32_t u16(size_t at) const {
    if (bytes.size() < 2 || at > bytes.size() - 2) return 0;
    return big_endian ? bytes[at] << 8 | bytes[at + 1] : bytes[at + 1] << 8 | bytes[at];
  }
  uint32_t u32(size_t at) const {
    return big_endian ? u16(at) << 16 | u16(at + 2) : u16(at + 2) << 16 | u16(at);
  }
};

}  // namespace

int exif_orientation(std::span<const uint8_t> tiff) {
  constexpr uint32_t orientation_tag = 0x0112, short_type = 3;
  if (tiff.size() < 8) return 1;
  const bool big = std::memcmp(tiff.data(), "MM\0*", 4) == 0;
  if (!big && std::memcmp(tiff.data(), "II*\0", 4) != 0) return 1;
  const TiffReader read{tiff, big};
  const size_t directory = read.u32(4);
  const uint32_t entries = read.u16(directory);
  for (uint32_t i = 0; i < entries; ++i) {
    const size_t entry = directory + 2 + 12 * size_t{i};
    if (entry + 12 > tiff.size()) break;
    if (read.u16(entry) != orientation_tag) continue;
    const uint32_t value =
        read.u16(entry + 2) == short_type ? read.u16(entry + 8) : read.u32(entry + 8);
    return value >= 1 && value <= 8 ? static_cast<int>(value) : 1;
  }
  return 1;
}

Image upright(Image stored, int orientation) {
  if (orientation <= 1 || orientation > 8) return stored;
  // 5-8 transpose; then the result's rows and columns may be reversed.
  const bool transpose = orientation >= 5;
  const bool flip_x = orientation == 2 || orientation == 3 || orientation == 6 || orientation == 7;
  const bool flip_y = orientation == 3 || orientation == 4 || orientation == 7 || orientation == 8;
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

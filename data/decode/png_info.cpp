// The chunks of a PNG file, without its pixels.
#include <array>
#include <cstring>
#include <string_view>

#include "data/decode/decode.h"

namespace bv {
namespace {

// CRC-32 (ISO 3309, reflected polynomial 0xEDB88320), four bytes per step.
struct Crc32 {
  std::array<std::array<uint32_t, 256>, 4> table{};

  constexpr Crc32() {
    for (uint32_t i = 0; i < 256; ++i) {
      uint32_t c = i;
      for (int k = 0; k < 8; ++k) c = c & 1 ? 0xEDB88320u ^ (c >> 1) : c >> 1;
      table[0][i] = c;
    }
    for (int t = 1; t < 4; ++t)
      for (uint32_t i = 0; i < 256; ++i)
        table[t][i] = table[0][table[t - 1][i] & 255] ^ (table[t - 1][i] >> 8);
  }
  uint32_t operator()(std::span<const uint8_t> bytes) const {
    uint32_t c = ~0u;
    size_t i = 0;
    for (; i + 4 <= bytes.size(); i += 4) {
      uint32_t word;
      std::memcpy(&word, &bytes[i], 4);
      c ^= word;
      c = table[3][c & 255] ^ table[2][c >> 8 & 255] ^ table[1][c >> 16 & 255] ^ table[0][c >> 24];
    }
    for (; i < bytes.size(); ++i) c = table[0][(c ^ bytes[i]) & 255] ^ (c >> 8);
    return ~c;
  }
};
constexpr Crc32 crc32;

uint32_t big_endian(std::span<const uint8_t> b, size_t at) {
  return uint32_t{b[at]} << 24 | b[at + 1] << 16 | b[at + 2] << 8 | b[at + 3];
}

}  // namespace

int inspect_png(std::span<const uint8_t> file) {
  constexpr size_t overhead = 12;  // length, name, checksum
  int orientation = 1;
  bool pixels = false;
  for (size_t at = 8; at + overhead <= file.size();) {
    const size_t length = big_endian(file, at);
    if (length > file.size() - at - overhead) break;
    const auto named = file.subspan(at + 4, 4 + length), content = named.subspan(4);
    const std::string_view name(reinterpret_cast<const char*>(named.data()), 4);
    const bool critical = !(name[0] & 0x20);
    // stb_image would refuse it too, with a message that all threads share.
    if (critical && name != "IHDR" && name != "PLTE" && name != "IDAT" && name != "IEND")
      throw BadImage("damaged PNG (unknown kind of critical chunk)");
    if (critical && crc32(named) != big_endian(file, at + 8 + length))
      throw BadImage("damaged PNG (checksum of " + std::string(name) + ")");
    if (at == 8) {
      if (name != "IHDR" || length != 13) throw BadImage("damaged PNG (no IHDR)");
      check_image_size(big_endian(content, 0), big_endian(content, 4), file.size());
    }
    if (name == "eXIf") orientation = exif_orientation(content);
    if (name == "IDAT") pixels = true;
    if (name == "IEND") {
      if (!pixels) throw BadImage("PNG without image data");
      return orientation;
    }
    at += overhead + length;
  }
  throw BadImage("PNG data is cut off");
}

}  // namespace bv

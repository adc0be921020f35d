// Checks the chunks of a PNG file without decoding its pixels.
#include <string_view>

#include "base/files/checksum.h"
#include "data/decode/decode.h"

namespace bv {
namespace {

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
    // stb_image refuses such a chunk, too, but writes its name into a message that threads share.
    if (critical && name != "IHDR" && name != "PLTE" && name != "IDAT" && name != "IEND")
      throw BadImage("damaged PNG (unknown kind of critical chunk)");
    if (critical && crc32(std::as_bytes(named)) != big_endian(file, at + 8 + length))
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

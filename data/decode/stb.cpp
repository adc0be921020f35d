// stb_image, with the checks that it leaves to its caller: truncated files, checksums, memory.
#include <cctype>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>

#include "data/decode/decode.h"

namespace bv {
namespace {

// Each allocation is limited, since a small file can make stb_image ask for gigabytes; and zeroed,
// since some versions read tables that a damaged file never filled.
thread_local size_t allocation_limit = 0;

void* stb_malloc(size_t bytes) {
  return bytes <= allocation_limit ? std::calloc(bytes, 1) : nullptr;
}
void* stb_realloc(void* old, size_t bytes) {
  return bytes <= allocation_limit ? std::realloc(old, bytes) : nullptr;
}

// Some of its assertions fail on damaged files. Its memory leaks then, which beats continuing.
[[noreturn]] void stb_assertion_failed() { throw BadImage("damaged image"); }

}  // namespace
}  // namespace bv

#define STBI_MALLOC(bytes) bv::stb_malloc(bytes)
#define STBI_REALLOC(old, bytes) bv::stb_realloc(old, bytes)
#define STBI_FREE(memory) std::free(memory)
#define STBI_NO_STDIO
#define STBI_NO_HDR
#define STBI_NO_LINEAR
#define STBI_NO_PSD
#define STBI_NO_PIC
#define STBI_NO_TGA
#define STBI_ASSERT(condition) ((condition) ? void() : bv::stb_assertion_failed())
#define STBI_MAX_DIMENSIONS (1 << 15)
#define STB_IMAGE_STATIC
#define STB_IMAGE_IMPLEMENTATION
#include <stb/stb_image.h>

namespace bv {
namespace {

using Bytes = std::span<const uint8_t>;

std::string reason(std::string_view format) {
  const char* why = stbi_failure_reason();
  return "damaged or unsupported " + std::string(format) + " (" + (why ? why : "unknown") + ")";
}

Image load(Bytes file, std::string_view format, int want_channels) {
  const int size = static_cast<int>(file.size());
  int width = 0, height = 0, channels = 0;
  allocation_limit = size_t{1} << 20;
  if (!stbi_info_from_memory(file.data(), size, &width, &height, &channels))
    throw BadImage(reason(format));
  check_image_size(width, height);
  allocation_limit += 16 * size_t(width) * height + 2 * file.size();
  const std::unique_ptr<uint8_t, decltype(&std::free)> pixels(
      stbi_load_from_memory(file.data(), size, &width, &height, &channels, want_channels),
      &std::free);
  if (!pixels) throw BadImage(reason(format));
  return to_rgb(pixels.get(), width, height, want_channels ? want_channels : channels);
}

uint32_t little_endian(Bytes b, size_t at, int bytes) {
  uint32_t value = 0;
  for (int i = bytes - 1; i >= 0; --i) value = value << 8 | b[at + i];
  return value;
}

// stb_image reads zeros past the end of a BMP.
void check_bmp(Bytes file) {
  if (file.size() < 54) throw BadImage("BMP data is cut off");
  const uint32_t pixels = little_endian(file, 10, 4);
  const bool old_header = little_endian(file, 14, 4) == 12;
  const int64_t width =
      old_header ? little_endian(file, 18, 2) : static_cast<int32_t>(little_endian(file, 18, 4));
  const int64_t height = old_header ? little_endian(file, 20, 2)
                                    : std::abs(int64_t{int32_t(little_endian(file, 22, 4))});
  const int64_t bits = little_endian(file, old_header ? 24 : 28, 2);
  check_image_size(width, height);
  if (static_cast<int64_t>(file.size()) < pixels + (width * bits + 31) / 32 * 4 * height)
    throw BadImage("BMP data is cut off");
}

// A number of a PNM header, with the white space and comments before it.
int64_t pnm_number(Bytes file, size_t& at) {
  while (at < file.size() && (std::isspace(file[at]) || file[at] == '#')) {
    if (file[at] == '#')
      while (at < file.size() && file[at] != '\n') ++at;
    else
      ++at;
  }
  int64_t value = 0;
  for (; at < file.size() && std::isdigit(file[at]) && value < (1 << 20); ++at)
    value = 10 * value + (file[at] - '0');
  return value;
}

void check_pnm(Bytes file) {
  size_t at = 2;
  const int64_t width = pnm_number(file, at), height = pnm_number(file, at);
  const int64_t largest = pnm_number(file, at);
  check_image_size(width, height);
  const int64_t bytes = width * height * (file[1] == '6' ? 3 : 1) * (largest > 255 ? 2 : 1);
  if (static_cast<int64_t>(file.size() - at) < 1 + bytes) throw BadImage("PNM data is cut off");
}

void check_gif(Bytes file) {
  size_t end = file.size();
  while (end > 0 && file[end - 1] == 0) --end;  // padding
  if (end == 0 || file[end - 1] != 0x3B) throw BadImage("GIF data is cut off");
}

}  // namespace

Image decode_stb(Bytes file) {
  if (file.size() > size_t{1} << 30) throw BadImage("the file is larger than 1 GiB");
  const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  if (text.starts_with("\x89PNG\r\n\x1a\n")) {
    const int orientation = inspect_png(file);
    return upright(load(file, "PNG", 0), orientation);
  }
  if (text.starts_with("BM")) return check_bmp(file), load(file, "BMP", 0);
  if (text.starts_with("GIF8")) return check_gif(file), load(file, "GIF", 4);
  if (text.starts_with("P5") || text.starts_with("P6"))
    return check_pnm(file), load(file, "PNM", 0);
  throw BadImage("not an image of a known format (JPEG, PNG, BMP, GIF, PPM, PGM)");
}

Image decode_jpeg_stb(Bytes file, const JpegInfo& info) {
  if (file.size() > size_t{1} << 30) throw BadImage("the file is larger than 1 GiB");
  if (!info.baseline_or_progressive) throw BadImage("neither baseline nor progressive JPEG");
  if (info.lacks_tables) throw BadImage("JPEG without its tables");
  if (info.components != 4 || info.adobe) return load(file, "JPEG", 3);
  // Four components are CMYK even without a marker that says so; stb_image needs Adobe's.
  constexpr uint8_t app14[] = {0xFF, 0xEE, 0, 14, 'A', 'd', 'o', 'b', 'e', 0, 100, 0, 0, 0, 0, 0};
  std::vector<uint8_t> marked(file.begin(), file.begin() + 2);
  marked.insert(marked.end(), std::begin(app14), std::end(app14));
  marked.insert(marked.end(), file.begin() + 2, file.end());
  return load(marked, "JPEG", 3);
}

}  // namespace bv

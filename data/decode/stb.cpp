// stb_image, with the checks that it leaves to the caller: truncation, checksums, memory.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <new>
#include <string>
#include <string_view>

#include "data/decode/decode.h"

namespace bv {
namespace {

// The memory of one decoding: limited, since a small file can make stb_image ask for gigabytes;
// zeroed, since some versions read tables that a damaged file never filled; and freed at the end,
// since exceptions pass through stb_image.
class Memory {
 public:
  Memory() { current = this; }
  ~Memory() {
    current = nullptr;
    for (const auto& [block, bytes] : blocks_) std::free(block);
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  void raise_limit(size_t bytes) { limit_ += bytes; }

  void* allocate(size_t bytes) { return fits(bytes) ? add(std::calloc(bytes, 1), bytes) : nullptr; }
  void* grow(void* old, size_t old_bytes, size_t bytes) {
    void* block = allocate(bytes);
    if (block && old) std::memcpy(block, old, std::min(old_bytes, bytes)), release(old);
    return block;
  }
  void release(void* block) {
    const auto found = blocks_.find(block);
    if (found == blocks_.end()) return;
    taken_ -= found->second;
    blocks_.erase(found);
    std::free(block);
  }

  static thread_local Memory* current;

 private:
  bool fits(size_t bytes) const { return bytes <= limit_ - taken_; }
  void* add(void* block, size_t bytes) {
    if (!block) throw std::bad_alloc();
    blocks_[block] = bytes;
    taken_ += bytes;
    return block;
  }

  std::map<void*, size_t> blocks_;
  size_t taken_ = 0, limit_ = size_t{1} << 20;
};
thread_local Memory* Memory::current = nullptr;

// Some of stb_image's assertions fail on damaged files.
[[noreturn]] void stb_assertion_failed() { throw BadImage("damaged image"); }

}  // namespace
}  // namespace bv

#define STBI_MALLOC(bytes) bv::Memory::current->allocate(bytes)
#define STBI_REALLOC_SIZED(old, old_bytes, bytes) bv::Memory::current->grow(old, old_bytes, bytes)
#define STBI_FREE(block) bv::Memory::current->release(block)
#define STBI_NO_STDIO
#define STBI_NO_HDR
#define STBI_NO_LINEAR
#define STBI_NO_PSD
#define STBI_NO_PIC
#define STBI_NO_TGA
#define STBI_NO_PNM
#define STBI_ASSERT(condition) ((condition) ? void() : bv::stb_assertion_failed())
#define STBI_MAX_DIMENSIONS (1 << 15)
#define STB_IMAGE_STATIC
#define STB_IMAGE_IMPLEMENTATION
// Guards against faults that header checks can't prevent: products of damaged coefficients
// overflow, so they wrap; indices beyond a short palette read zeros, not stale stack memory.
#pragma GCC optimize("wrapv")
#if __GNUC__ >= 12 && !defined(__clang__)
#pragma GCC optimize("trivial-auto-var-init=zero")
#endif
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
  Memory memory;
  if (!stbi_info_from_memory(file.data(), size, &width, &height, &channels))
    throw BadImage(reason(format));
  height = std::abs(height);  // negative in a BMP whose rows start at the top
  check_image_size(width, height, file.size());
  const int64_t count = int64_t{width} * height;
  const auto lock = wait_if_large(12 * count);
  memory.raise_limit(24 * size_t(count) + 4 * file.size());
  const uint8_t* pixels =
      stbi_load_from_memory(file.data(), size, &width, &height, &channels, want_channels);
  if (!pixels) throw BadImage(reason(format));
  return to_rgb(pixels, width, height, want_channels ? want_channels : channels);
}

}  // namespace

Image decode_stb(Bytes file, Format format) {
  if (format == Format::png) {
    const int orientation = inspect_png(file);
    return upright(load(file, "PNG", 0), orientation);
  }
  if (format == Format::gif) return inspect_gif(file), load(file, "GIF", 4);
  return load(file, "BMP", 0);  // checked by decode_bmp
}

Image decode_jpeg_stb(Bytes file, const JpegInfo& info) {
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

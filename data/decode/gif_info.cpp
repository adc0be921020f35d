// Walks a GIF file up to the end of its first image without decoding pixels.
#include <algorithm>
#include <array>

#include "data/decode/decode.h"

namespace bv {
namespace {

using Bytes = std::span<const uint8_t>;

constexpr size_t screen_flags = 10, first_block = 13;
constexpr int extension = 0x21, image = 0x2C;

class GifWalk {
 public:
  explicit GifWalk(Bytes file) : file_(file), at_(screen_flags) {
    const size_t palette = palette_bytes(byte());
    at_ = first_block + palette;
  }

  void run() {
    int kind = byte();
    for (; kind == extension; kind = byte()) {
      ++at_;  // the extension's type
      for (int length = byte(); length > 0; length = byte()) at_ += length;
    }
    if (kind != image) return;  // stb_image refuses it
    at_ += 4;
    const int64_t width = u16(), height = u16();
    at_ += palette_bytes(byte());
    // A 12-bit code can stand for up to 4,000 pixels, even past the end of the image.
    constexpr int64_t any_file = 1 << 16;
    if (coded_pixels(any_file + 2 * width * height) > any_file + 2 * width * height)
      throw BadImage("damaged GIF (more data than pixels)");
  }

 private:
  // Zeros beyond the end, as stb_image reads them.
  int byte() { return at_ < file_.size() ? file_[at_++] : 0; }
  int u16() {
    const int low = byte();
    return low | byte() << 8;
  }
  static size_t palette_bytes(int flags) {
    return flags & 0x80 ? 3 * (size_t{2} << (flags & 7)) : 0;
  }

  // The next code, from blocks that each begin with their length; -1 at the end.
  int next_code(int width) {
    while (bits_ < width) {
      if (block_ == 0 && (block_ = byte()) == 0) return -1;
      --block_;
      buffer_ |= uint32_t(byte()) << bits_;
      bits_ += 8;
    }
    const int code = int(buffer_ & ((1u << width) - 1));
    buffer_ >>= width;
    bits_ -= width;
    return code;
  }

  // The total length of the codes' strings (Welch 1984), summed until it exceeds the limit.
  int64_t coded_pixels(int64_t limit) {
    constexpr int codes = 8192;  // stb_image's table; its codes have at most 12 bits
    const int first_width = byte() + 1;
    if (first_width > 13) return 0;  // stb_image refuses it
    const int clear = 1 << (first_width - 1);
    std::array<int, codes> length{};
    std::fill_n(length.begin(), clear, 1);
    int width = first_width, next = clear + 2, last = -1;
    int64_t pixels = 0;
    while (pixels <= limit) {
      const int code = next_code(width);
      if (code == clear) {
        width = first_width, next = clear + 2, last = -1;
        continue;
      }
      if (code < 0 || code == clear + 1 || code > next || next == codes) break;
      if (last >= 0) length[next++] = length[last] + 1;
      pixels += length[code];
      if ((next & ((1 << width) - 1)) == 0 && next < 1 << 12) ++width;
      last = code;
    }
    return pixels;
  }

  Bytes file_;
  size_t at_;
  int block_ = 0, bits_ = 0;
  uint32_t buffer_ = 0;
};

}  // namespace

void inspect_gif(Bytes file) {
  size_t end = file.size();
  while (end > 0 && file[end - 1] == 0) --end;  // padding
  if (end == 0 || file[end - 1] != 0x3B) throw BadImage("GIF data is cut off");
  GifWalk(file).run();
}

}  // namespace bv

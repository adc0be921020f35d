// BMP: the checks of its header, and the pixels of those files with a palette that stb_image
// doesn't read rightly: run-length encoded ones, and OS/2's.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <string>

#include "data/decode/decode.h"

namespace bv {
namespace {

using Bytes = std::span<const uint8_t>;

constexpr const char* cut_off = "BMP data is cut off";
enum Compression : int64_t { none, rle8, rle4, masks, jpeg, png };

struct Bmp {
  int64_t header = 0, width = 0, height = 0, bits = 0, compression = none, pixels_at = 0;
  bool from_top = false;

  bool has_palette() const { return bits == 1 || bits == 4 || bits == 8; }
  bool run_length() const {
    return (compression == rle8 && bits == 8) || (compression == rle4 && bits == 4);
  }
  bool of_os2() const { return header == 12 || header == 16 || header == 64; }
  bool for_stb() const { return !run_length() && !(of_os2() && has_palette()); }
};

int64_t number_at(Bytes b, size_t at, int bytes) {
  if (at + size_t(bytes) > b.size()) throw BadImage(cut_off);
  int64_t value = 0;
  for (int i = bytes - 1; i >= 0; --i) value = value << 8 | b[at + size_t(i)];
  return value;
}

// The reason why the file isn't read; empty: it is read.
std::string not_read(const Bmp& b) {
  const std::string size = std::to_string(b.header);
  if (!b.of_os2() && b.header != 40 && b.header != 56 && b.header != 108 && b.header != 124)
    return "BMP with a header of " + size + " bytes";
  if (b.of_os2() && b.compression > rle4) return "compressed BMP of OS/2";
  if (b.of_os2() && b.header != 12 && !b.has_palette()) return "BMP of OS/2 without a palette";
  if (b.compression == jpeg || b.compression == png)
    return std::string("BMP with a ") + (b.compression == jpeg ? "JPEG" : "PNG") + " in it";
  if (b.compression == masks ? b.bits != 16 && b.bits != 32
                             : b.compression != none && !b.run_length())
    return "BMP of " + std::to_string(b.bits) + " bits with compression " +
           std::to_string(b.compression);
  if (!b.has_palette() && b.bits != 16 && b.bits != 24 && b.bits != 32)
    return "BMP of " + std::to_string(b.bits) + " bits per pixel";
  return "";
}

Bmp parse(FileView& file) {
  const Bytes start = file.at(0, 54);
  Bmp b{.header = number_at(start, 14, 4), .pixels_at = number_at(start, 10, 4)};
  const bool old = b.header == 12;
  const auto side = [&](size_t at) -> int64_t {
    return old ? number_at(start, at, 2) : int32_t(number_at(start, at, 4));
  };
  b.width = side(18);
  b.height = side(old ? 20 : 22);
  b.bits = number_at(start, old ? 24 : 28, 2);
  if (!old && b.header != 16) b.compression = number_at(start, 30, 4);
  b.from_top = b.height < 0;
  b.height = std::abs(b.height);
  check_image_size(b.width, b.height, file.size());
  if (const std::string what = not_read(b); !what.empty())
    throw BadImage(what + ": not read, convert it");
  const int64_t bytes = b.run_length() ? 2 : (b.width * b.bits + 31) / 32 * 4 * b.height;
  if (int64_t(file.size()) < b.pixels_at + bytes) throw BadImage(cut_off);
  return b;
}

class PaletteReader {
 public:
  PaletteReader(Bytes file, const Bmp& b)
      : file_(file),
        b_(b),
        at_(size_t(b.pixels_at)),
        image_(black_image(int(b.height), int(b.width))) {
    constexpr size_t file_header = 14;
    const size_t entry = b.header == 12 ? 3 : 4;
    size_t from = file_header + size_t(b.header);
    const size_t end = std::min(size_t(b.pixels_at), file.size());
    for (size_t i = 0; i < size_t{1} << b.bits && from + entry <= end; ++i, from += entry)
      palette_[i] = {file[from + 2], file[from + 1], file[from]};
  }

  Image run() {
    if (b_.run_length())
      read_runs();
    else
      read_rows();
    return std::move(image_);
  }

 private:
  uint8_t byte() {
    if (at_ >= file_.size()) throw BadImage(cut_off);
    return file_[at_++];
  }
  void put(size_t colour) {
    const int64_t row = b_.from_top ? y_ : b_.height - 1 - y_;
    if (x_ < b_.width && y_ < b_.height)
      std::ranges::copy(palette_[colour], &image_.pixels[3 * size_t(row * b_.width + x_)]);
    ++x_;
  }

  void read_rows() {
    const int64_t stride = (b_.width * b_.bits + 31) / 32 * 4;
    for (; y_ < b_.height; ++y_)
      for (x_ = 0; x_ < b_.width;) {
        const uint8_t packed = file_[size_t(b_.pixels_at + y_ * stride + x_ * b_.bits / 8)];
        put(packed >> (8 - b_.bits - x_ * b_.bits % 8) & ((1 << b_.bits) - 1));
      }
  }

  // Pixels that are jumped over have colour 0. A missing end mark does no harm.
  void read_runs() {
    enum { end_of_row, end_of_image, jump };
    const bool halves = b_.bits == 4;  // two pixels a byte, the upper half first
    for (int64_t i = 0; i < b_.width * b_.height; ++i)
      std::ranges::copy(palette_[0], &image_.pixels[3 * size_t(i)]);
    const auto whole = [&] { return y_ >= b_.height || (y_ == b_.height - 1 && x_ >= b_.width); };
    while (y_ < b_.height && !(whole() && at_ + 2 > file_.size())) {
      const int count = byte(), value = byte();
      if (count > 0) {
        for (int i = 0; i < count; ++i)
          put(size_t(!halves ? value : i % 2 ? value & 15 : value >> 4));
      } else if (value == end_of_row) {
        x_ = 0, ++y_;
      } else if (value == end_of_image) {
        return;
      } else if (value == jump) {
        x_ += byte(), y_ += byte();
      } else {  // pixels as they are, in an even number of bytes
        const int bytes = halves ? (value + 1) / 2 : value;
        for (int i = 0, packed = 0; i < value; ++i) {
          if (!halves || i % 2 == 0) packed = byte();
          put(size_t(!halves ? packed : i % 2 ? packed & 15 : packed >> 4));
        }
        at_ += size_t(bytes % 2);
      }
    }
  }

  Bytes file_;
  const Bmp& b_;
  size_t at_;
  Image image_;
  std::array<std::array<uint8_t, 3>, 256> palette_{};
  int64_t x_ = 0, y_ = 0;
};

}  // namespace

HeaderSize check_bmp(FileView& file) {
  const Bmp b = parse(file);
  return {static_cast<int>(b.height), static_cast<int>(b.width)};
}

Image decode_bmp(Bytes file) {
  FileView view(file);
  const Bmp b = parse(view);
  if (b.for_stb()) return decode_stb(file, Format::bmp);
  const auto lock = wait_if_large(3 * b.width * b.height);
  return PaletteReader(file, b).run();
}

}  // namespace bv

// Reads the first directory of a TIFF file (TIFF 6.0, BigTIFF). An Exif block is a TIFF file, too.
#include <algorithm>
#include <cstring>
#include <string>

#include "data/decode/decode.h"

namespace bv {
namespace {

class Directory {
 public:
  explicit Directory(FileView& file) : file_(file) {
    const auto start = file.at(0, 4);
    const auto starts_with = [&](const char* magic) {
      return start.size() == 4 && std::memcmp(start.data(), magic, 4) == 0;
    };
    long_ = starts_with("II+\0") || starts_with("MM\0+");
    big_endian_ = starts_with("MM\0*") || starts_with("MM\0+");
    if (!long_ && !big_endian_ && !starts_with("II*\0")) return;
    const uint64_t directory = long_ ? number(8, 8) : number(4, 4);
    first_ = directory + (long_ ? 8 : 2);
    entries_ = std::min<uint64_t>(number(directory, long_ ? 8 : 2), 65535);
  }

  // The value of a tag that has a single number.
  uint64_t value(uint64_t tag, uint64_t if_absent) {
    constexpr uint64_t byte_type = 1, short_type = 3, long8_type = 16;
    const uint64_t entry_bytes = long_ ? 20 : 12;
    for (uint64_t i = 0, at = first_; i < entries_; ++i, at += entry_bytes) {
      if (at + entry_bytes > file_.size()) break;
      if (number(at, 2) != tag) continue;
      const uint64_t type = number(at + 2, 2);
      return number(at + (long_ ? 12 : 8), type == byte_type             ? 1
                                           : type == short_type          ? 2
                                           : type == long8_type && long_ ? 8
                                                                         : 4);
    }
    return if_absent;
  }

 private:
  // 0 beyond the end.
  uint64_t number(uint64_t offset, int bytes) {
    const auto b = file_.at(offset, static_cast<size_t>(bytes));
    if (b.size() < static_cast<size_t>(bytes)) return 0;
    uint64_t value = 0;
    for (int i = 0; i < bytes; ++i)
      value = value << 8 | b[static_cast<size_t>(big_endian_ ? i : bytes - 1 - i)];
    return value;
  }

  FileView& file_;
  bool long_ = false, big_endian_ = false;  // long: BigTIFF, whose offsets have 64 bits
  uint64_t first_ = 0, entries_ = 0;
};

constexpr uint64_t width_tag = 256, height_tag = 257, compression_tag = 259, orientation_tag = 274,
                   samples_tag = 277;

}  // namespace

int exif_orientation(std::span<const uint8_t> tiff) {
  FileView file(tiff);
  const uint64_t value = Directory(file).value(orientation_tag, 1);
  return value >= 1 && value <= 8 ? static_cast<int>(value) : 1;
}

HeaderSize inspect_tiff(FileView& file) {
  constexpr int64_t too_large = INT32_MAX;
  Directory directory(file);
  const auto value = [&](uint64_t tag, uint64_t if_absent) {
    return static_cast<int64_t>(std::min<uint64_t>(directory.value(tag, if_absent), too_large));
  };
  const int64_t width = value(width_tag, 0), height = value(height_tag, 0);
  if (width == 0 && height == 0) throw BadImage("TIFF data is cut off");
  check_image_size(width, height, file.size());
  // Each plane and row may have a strip of its own, which libtiff lists when it opens the file.
  if (value(samples_tag, 1) > 64)
    throw BadImage("TIFF with " + std::to_string(value(samples_tag, 1)) + " samples per pixel");
  constexpr int64_t none = 1, ccitt_first = 2, ccitt_last = 4, lzw = 5, jpeg = 7, deflate = 8,
                    packbits = 32773, old_deflate = 32946;
  const int64_t method = value(compression_tag, none);
  const bool ccitt = method >= ccitt_first && method <= ccitt_last;
  if (!ccitt && method != none && method != lzw && method != jpeg && method != deflate &&
      method != packbits && method != old_deflate)
    throw BadImage("TIFF compressed by method " + std::to_string(method) +
                   "; none, CCITT, LZW, JPEG, Deflate and PackBits are read");
  return {static_cast<int>(height), static_cast<int>(width)};
}

}  // namespace bv

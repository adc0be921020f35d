// Reads a file's format from its first bytes and, for the header check, the image's size.
#include <algorithm>
#include <cctype>
#include <string>
#include <string_view>

#include "data/decode/decode.h"

namespace bv {
namespace {

using Bytes = std::span<const uint8_t>;

int64_t big_endian(Bytes b, size_t at, int bytes) {
  int64_t value = 0;
  for (int i = 0; i < bytes; ++i) value = value << 8 | b[at + size_t(i)];
  return value;
}

int64_t little_endian(Bytes b, size_t at, int bytes) {
  int64_t value = 0;
  for (int i = bytes - 1; i >= 0; --i) value = value << 8 | b[at + size_t(i)];
  return value;
}

// `count` bytes at `offset`; throws BadImage if the file has fewer.
Bytes need(FileView& file, uint64_t offset, size_t count, const char* format) {
  const Bytes bytes = file.at(offset, count);
  if (bytes.size() < count) throw BadImage(std::string(format) + " data is cut off");
  return bytes;
}

HeaderSize checked(int64_t height, int64_t width, const FileView& file) {
  check_image_size(width, height, file.size());
  return {static_cast<int>(height), static_cast<int>(width)};
}

// Walks the segments up to the frame header; bytes between segments are left to the decoders.
HeaderSize check_jpeg(FileView& file) {
  constexpr int sos = 0xDA, dht = 0xC4, jpg = 0xC8, dac = 0xCC, fill = 0xFF;
  uint64_t at = 2;
  while (true) {
    const Bytes head = need(file, at, 4, "JPEG");
    const int marker = head[1];
    if (head[0] != 0xFF || marker == sos) return {};
    if (marker == fill) {
      ++at;
    } else if (marker <= 1 || (marker >= 0xD0 && marker <= 0xD9)) {
      at += 2;  // no segment
    } else if (marker >= 0xC0 && marker <= 0xCF && marker != dht && marker != jpg &&
               marker != dac) {
      const Bytes frame = need(file, at, 9, "JPEG");
      return checked(big_endian(frame, 5, 2), big_endian(frame, 7, 2), file);
    } else {
      const int64_t length = big_endian(head, 2, 2);
      if (length < 2) throw BadImage("JPEG data is cut off");
      at += 2 + uint64_t(length);
    }
  }
}

HeaderSize check_png(FileView& file) {
  const Bytes ihdr = need(file, 8, 16, "PNG");
  return checked(big_endian(ihdr, 12, 4), big_endian(ihdr, 8, 4), file);
}

HeaderSize check_gif(FileView& file) {
  const Bytes screen = need(file, 6, 7, "GIF");
  return checked(little_endian(screen, 2, 2), little_endian(screen, 0, 2), file);
}

}  // namespace

Format format_of(Bytes start) {
  const std::string_view text(reinterpret_cast<const char*>(start.data()), start.size());
  if (text.starts_with("\xFF\xD8")) return Format::jpeg;
  if (text.starts_with("\x89PNG\r\n\x1a\n")) return Format::png;
  if (text.starts_with("BM")) return Format::bmp;
  if (text.starts_with("GIF8")) return Format::gif;
  if (text.size() > 2 && text[0] == 'P' && text[1] >= '1' && text[1] <= '6' &&
      (text[2] == '#' || std::isspace(static_cast<unsigned char>(text[2]))))
    return Format::pnm;
  if (text.starts_with("RIFF") && text.size() >= 12 && text.substr(8).starts_with("WEBP"))
    return Format::webp;
  for (const char* byte_order : {"II*\0", "MM\0*", "II+\0", "MM\0+"})
    if (text.starts_with(std::string_view(byte_order, 4))) return Format::tiff;
  return Format::unknown;
}

std::string_view name_of(Format format) {
  constexpr std::string_view names[] = {"jpeg", "png", "bmp", "gif", "pnm", "webp", "tiff", ""};
  return names[static_cast<size_t>(format)];
}

std::string_view extension_for(Bytes start) {
  constexpr std::string_view extensions[] = {"jpg", "png",  "bmp",  "gif",
                                             "ppm", "webp", "tiff", "bin"};
  return extensions[static_cast<size_t>(format_of(start))];
}

std::string known_formats() {
  return std::string("JPEG, PNG, BMP, GIF") + (have_webp ? ", WebP" : "") +
         (have_tiff ? ", TIFF" : "") + " and PPM";
}

void require_decoder(Format format, Bytes start) {
  if (format == Format::unknown) {
    if (is_git_lfs_pointer(start)) throw MendableImage(std::string(git_lfs_pointer));
    const std::string what = name_of_stranger(start);
    throw BadImage("not an image of a known format (" + known_formats() + " are read)" +
                   (what.empty() ? "" : ": " + what));
  }
  constexpr const char* without = "; this program was built without ";
  if (format == Format::webp && !have_webp)
    throw BadImage(std::string("a WebP image") + without + "libwebp (make deps && make)");
  if (format == Format::tiff && !have_tiff)
    throw BadImage(std::string("a TIFF image") + without + "libtiff (make deps && make)");
}

HeaderSize check_header(FileView& file) {
  if (file.size() == 0) throw BadImage("the file is empty");
  const Bytes start = file.at(0, stranger_bytes);
  const Format format = format_of(start.first(std::min<size_t>(start.size(), 12)));
  require_decoder(format, start);
  switch (format) {
    case Format::jpeg:
      return check_jpeg(file);
    case Format::png:
      return check_png(file);
    case Format::bmp:
      return check_bmp(file);
    case Format::gif:
      return check_gif(file);
    case Format::pnm: {
      const PnmInfo info = inspect_pnm(file);
      return {info.height, info.width};
    }
    case Format::webp:
      if constexpr (have_webp) {
        const WebpInfo info = inspect_webp(file);
        return {info.height, info.width};
      }
      break;
    case Format::tiff:
      if constexpr (have_tiff) return inspect_tiff(file);
      break;
    case Format::unknown:
      break;
  }
  return {};
}

}  // namespace bv

#include "data/decode/decode.h"

#if BAREVISION_TIFF
#include <tiffio.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>

namespace bv {
namespace {

// A file in memory, as libtiff reads it, and the first error that it reports.
struct Source {
  std::span<const uint8_t> bytes;
  uint64_t at = 0;
  std::string error = {};
};
Source& source(thandle_t handle) { return *static_cast<Source*>(handle); }

tmsize_t read(thandle_t handle, void* out, tmsize_t count) {
  Source& s = source(handle);
  if (s.at >= s.bytes.size() || count <= 0) return 0;
  const auto n = std::min<uint64_t>(static_cast<uint64_t>(count), s.bytes.size() - s.at);
  std::memcpy(out, &s.bytes[s.at], n);
  s.at += n;
  return static_cast<tmsize_t>(n);
}
tmsize_t write(thandle_t, void*, tmsize_t) { return 0; }
toff_t seek(thandle_t handle, toff_t offset, int from) {
  Source& s = source(handle);
  return s.at = offset + (from == SEEK_CUR ? s.at : from == SEEK_END ? s.bytes.size() : 0);
}
int close(thandle_t) { return 0; }
toff_t size(thandle_t handle) { return source(handle).bytes.size(); }
// Maps the file read-only. Without this function, libtiff 4.5 refuses some uncompressed tiles.
int map(thandle_t handle, void** memory, toff_t* bytes) {
  *memory = const_cast<uint8_t*>(source(handle).bytes.data());
  *bytes = source(handle).bytes.size();
  return 1;
}
void unmap(thandle_t, void*, toff_t) {}

void on_error(thandle_t handle, const char*, const char* format, va_list arguments) {
  if (!handle || !source(handle).error.empty()) return;
  char text[200];
  std::vsnprintf(text, sizeof text, format, arguments);
  source(handle).error = text;
}

// Without handlers libtiff prints. The handlers are process-wide. Warnings are ignored.
void set_handlers() {
  TIFFSetErrorHandler(nullptr);
  TIFFSetWarningHandler(nullptr);
  TIFFSetErrorHandlerExt(on_error);
}

[[noreturn]] void fail(std::string why) {
  std::ranges::replace(why, '\n', ' ');
  throw BadImage("damaged or unsupported TIFF" + (why.empty() ? "" : " (" + why + ")"));
}

// The bytes of one strip or tile, which may be far larger than the image.
int64_t piece_bytes(TIFF* tiff, int64_t pixels) {
  const bool tiled = TIFFIsTiled(tiff) != 0;
  const uint64_t bytes = tiled ? TIFFTileSize64(tiff) : TIFFStripSize64(tiff);
  const uint64_t pieces = tiled ? TIFFNumberOfTiles(tiff) : TIFFNumberOfStrips(tiff);
  constexpr uint64_t any_image = 16 << 20, bytes_per_pixel = 24;
  if (bytes == 0 || pieces > (any_image + bytes_per_pixel * static_cast<uint64_t>(pixels)) / bytes)
    fail("strips or tiles that don't match its size");
  return static_cast<int64_t>(bytes);
}

enum class Alpha { none, straight, premultiplied };

// Meaning of alpha in libtiff's pixels: it premultiplies colours, but not greys.
Alpha alpha_of(const TIFFRGBAImage& image) {
  uint16_t count = 0, *kinds = nullptr;
  TIFFGetFieldDefaulted(image.tif, TIFFTAG_EXTRASAMPLES, &count, &kinds);
  const bool some_other_sample = count > 0 && kinds[0] == EXTRASAMPLE_UNSPECIFIED;
  if (image.alpha == 0 || some_other_sample) return Alpha::none;
  const bool grey =
      image.photometric == PHOTOMETRIC_MINISBLACK || image.photometric == PHOTOMETRIC_MINISWHITE;
  return grey && image.alpha == EXTRASAMPLE_UNASSALPHA ? Alpha::straight : Alpha::premultiplied;
}

void over_white(uint32_t pixel, Alpha alpha, uint8_t* rgb) {
  const uint32_t values[] = {TIFFGetR(pixel), TIFFGetG(pixel), TIFFGetB(pixel)};
  const uint32_t a = alpha == Alpha::none ? 255 : TIFFGetA(pixel);
  for (int c = 0; c < 3; ++c) {
    const uint32_t value = alpha == Alpha::straight ? (values[c] * a + 127) / 255 : values[c];
    rgb[c] = static_cast<uint8_t>(std::min(value + 255 - a, 255u));
  }
}

struct ImageReader {
  TIFFRGBAImage image{};
  explicit ImageReader(TIFF* tiff) {
    char why[1024] = "";
    constexpr int stop_on_error = 1;
    if (!TIFFRGBAImageOK(tiff, why) || !TIFFRGBAImageBegin(&image, tiff, stop_on_error, why))
      fail(why);
    image.req_orientation = image.orientation;  // as stored; libtiff can't transpose
  }
  ~ImageReader() { TIFFRGBAImageEnd(&image); }
  ImageReader(const ImageReader&) = delete;
  ImageReader& operator=(const ImageReader&) = delete;
};

}  // namespace

Image decode_tiff(std::span<const uint8_t> file) {
  FileView view(file);
  inspect_tiff(view);
  static std::once_flag handlers;
  std::call_once(handlers, set_handlers);
  Source source{.bytes = file};
  const std::unique_ptr<TIFF, void (*)(TIFF*)> tiff(
      TIFFClientOpen("TIFF", "r", &source, read, write, seek, close, size, map, unmap),
      [](TIFF* t) {
        if (t) TIFFClose(t);
      });
  if (!tiff) fail(source.error);
  ImageReader reader(tiff.get());
  const TIFFRGBAImage& stored = reader.image;
  check_image_size(stored.width, stored.height, file.size());
  const auto width = static_cast<int>(stored.width), height = static_cast<int>(stored.height);
  const int64_t count = int64_t{width} * height;
  const auto lock = wait_if_large(piece_bytes(tiff.get(), count) + 7 * count);
  std::vector<uint32_t> pixels(static_cast<size_t>(count));
  if (!TIFFRGBAImageGet(&reader.image, pixels.data(), stored.width, stored.height))
    fail(source.error);
  Image image = black_image(height, width);
  const Alpha alpha = alpha_of(stored);
  for (size_t i = 0; i < pixels.size(); ++i) over_white(pixels[i], alpha, &image.pixels[3 * i]);
  return upright(std::move(image), stored.orientation);
}

}  // namespace bv
#endif

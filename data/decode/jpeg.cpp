#include "data/decode/decode.h"

#if BAREVISION_TURBOJPEG
// clang-format off
#include <cstdio>  // jpeglib.h needs its types
#include <jpeglib.h>
#include <jerror.h>
// clang-format on

#include <algorithm>
#include <csetjmp>
#include <new>
#include <string>

namespace bv {
namespace {

// libjpeg reports errors by a call that must not return, and no exception may pass through its C
// frames: errors jump back into start or read_rows, which have no objects with destructors.
struct ErrorManager {
  jpeg_error_mgr base;  // first: libjpeg passes its address back
  std::jmp_buf back;
  char message[JMSG_LENGTH_MAX], warning[JMSG_LENGTH_MAX];
};

[[noreturn]] void on_error(j_common_ptr jpeg) {
  auto* error = reinterpret_cast<ErrorManager*>(jpeg->err);
  error->base.format_message(jpeg, error->message);
  std::longjmp(error->back, 1);
}

// Like other decoders we accept an image with a damaged spot; the first warning is kept.
void on_message(j_common_ptr jpeg, int level) {
  auto* error = reinterpret_cast<ErrorManager*>(jpeg->err);
  if (level < 0 && error->base.num_warnings++ == 0)
    error->base.format_message(jpeg, error->warning);
}

// Only 1/8, 1/4 and 1/2 have fast inverse DCTs.
int scale_down(int shorter, int at_least) {
  int down = 1;
  while (at_least > 0 && down < 8 && (shorter + 2 * down - 1) / (2 * down) >= at_least) down *= 2;
  return down;
}

// One pixel as Adobe stores CMYK in JPEG: inverted, so 255 is no ink.
void inverted_cmyk_to_rgb(const uint8_t* cmyk, uint8_t* rgb) {
  for (int c = 0; c < 3; ++c) rgb[c] = static_cast<uint8_t>((cmyk[c] * cmyk[3] + 127) / 255);
}

struct Decompressor {
  jpeg_decompress_struct jpeg{};
  ErrorManager error{};

  Decompressor() {
    jpeg.err = jpeg_std_error(&error.base);
    error.base.error_exit = on_error;
    error.base.emit_message = on_message;
  }
  ~Decompressor() { jpeg_destroy_decompress(&jpeg); }
  Decompressor(const Decompressor&) = delete;
  Decompressor& operator=(const Decompressor&) = delete;

  bool start(std::span<const uint8_t> file, int down) {
    if (setjmp(error.back)) return false;
    jpeg_create_decompress(&jpeg);
    jpeg_mem_src(&jpeg, file.data(), file.size());
    jpeg_read_header(&jpeg, TRUE);
    jpeg.out_color_space = jpeg.num_components == 4 ? JCS_CMYK : JCS_RGB;
    jpeg.scale_num = 1;
    jpeg.scale_denom = down;
    return jpeg_start_decompress(&jpeg);
  }

  bool read_rows(uint8_t* out, uint8_t* cmyk) {
    if (setjmp(error.back)) return false;
    const size_t width = jpeg.output_width;
    while (jpeg.output_scanline < jpeg.output_height) {
      uint8_t* rgb = out + jpeg.output_scanline * width * 3;
      uint8_t* row = cmyk ? cmyk : rgb;
      jpeg_read_scanlines(&jpeg, &row, 1);
      if (cmyk)
        for (size_t x = 0; x < width; ++x) inverted_cmyk_to_rgb(cmyk + 4 * x, rgb + 3 * x);
    }
    return true;
  }

  [[noreturn]] void fail() const {
    if (error.base.msg_code == JERR_OUT_OF_MEMORY) throw std::bad_alloc();
    throw BadImage(std::string("damaged or unsupported JPEG (") + error.message + ")");
  }
};

}  // namespace

Image decode_jpeg_turbo(std::span<const uint8_t> file, const JpegInfo& info, int at_least,
                        std::string* warning) {
  if (info.components == 2 || info.components > 4)
    throw BadImage("JPEG with " + std::to_string(info.components) + " components");
  const int down = scale_down(std::min(info.width, info.height), at_least);
  const int64_t pixels = int64_t{info.width} * info.height / (down * down);
  const auto lock = wait_if_large((info.multiple_scans ? 2 * info.samples : 0) + 3 * pixels);
  Decompressor d;
  if (!d.start(file, down)) d.fail();
  const int height = static_cast<int>(d.jpeg.output_height);
  const int width = static_cast<int>(d.jpeg.output_width);
  Image image = black_image(height, width);
  std::vector<uint8_t> cmyk(d.jpeg.output_components == 4 ? 4 * size_t(width) : 0);
  if (!d.read_rows(image.pixels.data(), cmyk.empty() ? nullptr : cmyk.data())) d.fail();
  if (warning && d.error.base.num_warnings > 0) *warning = d.error.warning;
  return image;
}

}  // namespace bv

#endif

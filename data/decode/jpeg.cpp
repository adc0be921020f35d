#include "data/decode/decode.h"

#if BAREVISION_TURBOJPEG
// clang-format off
#include <cstdio>  // jpeglib.h needs its types
#include <jpeglib.h>
#include <jerror.h>
// clang-format on

#include <algorithm>
#include <csetjmp>
#include <cstring>
#include <new>
#include <string>

namespace bv {
namespace {

// libjpeg reports errors by a call that must not return, and exceptions can't pass through its C
// frames: errors longjmp back into start, begin_part or read_rows, which have no objects with
// destructors.
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

// Like other decoders, accepts an image with a damaged spot; the first warning is kept.
void on_message(j_common_ptr jpeg, int level) {
  auto* error = reinterpret_cast<ErrorManager*>(jpeg->err);
  if (level < 0 && error->base.num_warnings++ == 0)
    error->base.format_message(jpeg, error->warning);
}

// One pixel as Adobe stores CMYK in JPEG: inverted, so 255 is no ink.
void inverted_cmyk_to_rgb(const uint8_t* cmyk, uint8_t* rgb) {
  for (int c = 0; c < 3; ++c) rgb[c] = static_cast<uint8_t>((cmyk[c] * cmyk[3] + 127) / 255);
}

// Columns decoded on each side of a part: upsampling reads one, and differs in narrow images.
constexpr int margin = 8;

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

  bool start(std::span<const uint8_t> file, int dct_scale) {
    if (setjmp(error.back)) return false;
    jpeg_create_decompress(&jpeg);
    jpeg_mem_src(&jpeg, file.data(), file.size());
    jpeg_read_header(&jpeg, TRUE);
    jpeg.out_color_space = jpeg.num_components == 4 ? JCS_CMYK : JCS_RGB;
    jpeg.scale_num = static_cast<unsigned>(dct_scale);
    jpeg.scale_denom = 8;
    return jpeg_start_decompress(&jpeg);
  }

  // Skips whole columns of MCUs that the part doesn't need, and the rows above it. Sets
  // `first_column` to the first decoded column.
  bool begin_part(const Region& part, int& first_column) {
    if (setjmp(error.back)) return false;
    const int width = static_cast<int>(jpeg.output_width);
    const int begin = std::max(0, part.left - margin);
    const int end = std::min(width, part.left + part.width + margin);
    auto first = static_cast<JDIMENSION>(begin), count = static_cast<JDIMENSION>(end - begin);
    first_column = 0;
    if (end - begin < width && columns_can_be_left_out()) {
      jpeg_crop_scanline(&jpeg, &first, &count);
      first_column = static_cast<int>(first);
    }
    if (part.top > 0) jpeg_skip_scanlines(&jpeg, static_cast<JDIMENSION>(part.top));
    return true;
  }

  // out [part.height, part.width, 3]; `row`: buffer for libjpeg's row; null: decodes into `out`.
  bool read_rows(const Region& part, int first_column, uint8_t* out, uint8_t* row) {
    if (setjmp(error.back)) return false;
    const size_t channels = static_cast<size_t>(jpeg.output_components);
    const size_t skip = channels * static_cast<size_t>(part.left - first_column);
    const size_t width = static_cast<size_t>(part.width);
    for (size_t y = 0; y < static_cast<size_t>(part.height); ++y) {
      uint8_t* rgb = out + 3 * width * y;
      uint8_t* line = row ? row : rgb;
      jpeg_read_scanlines(&jpeg, &line, 1);
      if (channels == 4)
        for (size_t x = 0; x < width; ++x) inverted_cmyk_to_rgb(row + skip + 4 * x, rgb + 3 * x);
      else if (row)
        std::memcpy(rgb, row + skip, 3 * width);
    }
    return true;
  }

  // False if leaving out columns would change the rest: in a progressive image that lacks scans,
  // libjpeg smooths each block with its neighbours; and it uses a wrong width for components (as in
  // 4:1:0) that are scaled partly by the inverse DCT and partly by upsampling.
  bool columns_can_be_left_out() const {
    const std::span components(jpeg.comp_info, static_cast<size_t>(jpeg.num_components));
    for (const jpeg_component_info& c : components) {
      const int x = c.h_samp_factor, y = c.v_samp_factor;
      const int max_x = jpeg.max_h_samp_factor, max_y = jpeg.max_v_samp_factor;
      const bool by_one = x == max_x || y == max_y || (2 * x == max_x && 2 * y == max_y);
      if (!by_one && jpeg.scale_num < 8) return false;
      if (!jpeg.coef_bits) continue;
      for (const int missing : std::span(jpeg.coef_bits[&c - jpeg.comp_info]))
        if (missing != 0) return false;
    }
    return true;
  }

  [[noreturn]] void fail() const {
    if (error.base.msg_code == JERR_OUT_OF_MEMORY) throw std::bad_alloc();
    throw BadImage(std::string("damaged or unsupported JPEG (") + error.message + ")");
  }
};

}  // namespace

Image decode_jpeg_turbo(std::span<const uint8_t> file, const JpegInfo& info, int dct_scale,
                        const Region& part, std::string* warning) {
  if (info.components == 2 || info.components > 4)
    throw BadImage("JPEG with " + std::to_string(info.components) + " components");
  const int64_t pixels = int64_t{part.width} * part.height;
  const auto lock = wait_if_large((info.multiple_scans ? 2 * info.samples : 0) + 3 * pixels);
  Decompressor d;
  int first_column = 0;
  if (!d.start(file, dct_scale) || !d.begin_part(part, first_column)) d.fail();
  Image image = black_image(part.height, part.width);
  const bool as_they_are =
      d.jpeg.output_components == 3 && static_cast<int>(d.jpeg.output_width) == part.width;
  std::vector<uint8_t> row(as_they_are ? 0
                                       : size_t(d.jpeg.output_components) * d.jpeg.output_width);
  if (!d.read_rows(part, first_column, image.pixels.data(), as_they_are ? nullptr : row.data()))
    d.fail();
  if (warning && d.error.base.num_warnings > 0) *warning = d.error.warning;
  return image;
}

}  // namespace bv

#endif

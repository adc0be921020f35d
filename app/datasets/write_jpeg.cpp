#include "app/datasets/write_jpeg.h"

#include "base/error.h"

#if BAREVISION_TURBOJPEG
// clang-format off
#include <cstdio>  // jpeglib.h needs its types
#include <jpeglib.h>
// clang-format on

#include <csetjmp>
#include <cstdlib>
#include <new>
#endif

namespace bv {

#if !BAREVISION_TURBOJPEG
std::string encode_jpeg(const Image&, int) {
  throw UserError(
      "this build can't write JPEG files, it lacks libjpeg-turbo; make deps && make adds it");
}
#else

namespace {

struct ErrorManager {
  jpeg_error_mgr base;  // first: libjpeg passes its address back
  std::jmp_buf back;
};

// Has no objects with destructors, because errors longjmp back into it.
bool compress(const Image& image, int quality, jpeg_compress_struct& jpeg, ErrorManager& error,
              unsigned char*& out, unsigned long& bytes) {
  jpeg.err = jpeg_std_error(&error.base);
  error.base.error_exit = [](j_common_ptr failed) {
    std::longjmp(reinterpret_cast<ErrorManager*>(failed->err)->back, 1);
  };
  if (setjmp(error.back)) return false;
  jpeg_create_compress(&jpeg);
  jpeg_mem_dest(&jpeg, &out, &bytes);
  jpeg.image_height = static_cast<JDIMENSION>(image.height);
  jpeg.image_width = static_cast<JDIMENSION>(image.width);
  jpeg.input_components = 3;
  jpeg.in_color_space = JCS_RGB;
  jpeg_set_defaults(&jpeg);
  jpeg_set_quality(&jpeg, quality, TRUE);
  jpeg_start_compress(&jpeg, TRUE);
  while (jpeg.next_scanline < jpeg.image_height) {
    auto* row = const_cast<JSAMPROW>(image.pixels.data()) +
                size_t{3} * jpeg.image_width * jpeg.next_scanline;
    jpeg_write_scanlines(&jpeg, &row, 1);
  }
  jpeg_finish_compress(&jpeg);
  return true;
}

}  // namespace

std::string encode_jpeg(const Image& image, int quality) {
  jpeg_compress_struct jpeg{};
  ErrorManager error{};
  unsigned char* out = nullptr;
  unsigned long bytes = 0;
  const bool done = compress(image, quality, jpeg, error, out, bytes);
  jpeg_destroy_compress(&jpeg);
  std::string file(reinterpret_cast<const char*>(out), done ? bytes : 0);
  std::free(out);
  if (!done) throw std::bad_alloc();  // compressing in memory can fail for no other reason
  return file;
}

#endif

}  // namespace bv

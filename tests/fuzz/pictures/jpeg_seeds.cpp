// JPEGs written by libjpeg-turbo; in a build without it, one by stb_image_write and a stored one.
#include "data/decode/decode.h"
#include "tests/data/encode_jpeg.h"
#include "tests/fuzz/pictures/seeds.h"

#if !BAREVISION_TURBOJPEG
#define STB_IMAGE_WRITE_STATIC
#define STB_IMAGE_WRITE_IMPLEMENTATION
#define STBI_WRITE_NO_STDIO
#pragma GCC diagnostic ignored "-Wunused-function"
#include <stb/stb_image_write.h>
#endif

namespace bv::test::fuzz {
namespace {

#if !BAREVISION_TURBOJPEG
// Grey, 23x23, progressive.
constexpr const char* progressive_jpeg =
    "ffd8ffdb0043000a07070807060a0808080b0a0a0b0e18100e0d0d0e1d15161118231f2524221f2221262b37"
    "2f26293429212230413134393b3e3e3e252e4449433c48373d3e3bffc2000b080017001701011100ffc40016"
    "0001010100000000000000000000000000050406ffda0008010100000001cda48128de4237ff00ffc4001910"
    "01010101010100000000000000000000020001031121ffda0008010100010502e6203222e67e030373c86473"
    "cbffc40017100003010000000000000000000000000000011031ffda0008010100063f0230c1557fffc4001f"
    "10000201030501000000000000000000000001311121c110617181b1f0ffda0008010100013f215b55705264"
    "2ad0e8f434a0e0b3647d9365139d0fffda000801010000001066ff00ffc40022100100010303040300000000"
    "000000000001110021314151f061b1d1f181c1e1ffda0008010100013f10236c65a80620e1d5f05320151738"
    "68ef920488ce87dd4fa8c9777fcd2d9a80443129613c735a9801208679e951c08492cec9e3b75a6770a6f8c7"
    "ab76afffd9";

std::string baseline_jpeg() {
  std::string file, rgb;
  for (int i = 0; i < 33 * 21 * 3; ++i) rgb += char(i * 5 + i / 99);
  stbi_write_jpg_to_func(
      [](void* to, void* bytes, int n) {
        static_cast<std::string*>(to)->append(static_cast<const char*>(bytes), size_t(n));
      },
      &file, 33, 21, 3, rgb.data(), 60);
  return file;
}
#endif

}  // namespace

std::vector<std::string> jpeg_seeds() {
#if BAREVISION_TURBOJPEG
  std::vector<std::string> files;
  for (const JpegPicture& p : {
           JpegPicture{.width = 33, .height = 21},
           JpegPicture{.width = 16, .height = 16, .sampling_x = 1, .sampling_y = 1},
           JpegPicture{.width = 40, .height = 24, .progressive = true},
           JpegPicture{
               .width = 17, .height = 9, .sampling_x = 1, .sampling_y = 1, .progressive = true},
           JpegPicture{.width = 23, .height = 23, .components = 1, .progressive = true},
           JpegPicture{.width = 19, .height = 18, .components = 1},
           JpegPicture{.width = 24, .height = 16, .components = 4},
           JpegPicture{.width = 24, .height = 16, .components = 4, .progressive = true},
           JpegPicture{.width = 48, .height = 32, .restart = 2},
           JpegPicture{.width = 48, .height = 32, .progressive = true, .restart = 1},
           JpegPicture{.width = 48, .height = 40, .sampling_y = 1},
           JpegPicture{.width = 40, .height = 48, .sampling_x = 1},
           JpegPicture{.width = 70, .height = 24, .sampling_x = 4, .sampling_y = 1},
           JpegPicture{.width = 20, .height = 12, .orientation = 6},
           JpegPicture{.width = 24, .height = 24, .arithmetic = true},
           JpegPicture{.width = 24, .height = 24, .progressive = true, .arithmetic = true},
       })
    files.push_back(encode_jpeg(p));
  return files;
#else
  return {baseline_jpeg(), from_hex(progressive_jpeg)};
#endif
}

}  // namespace bv::test::fuzz

// JPEGs by libjpeg-turbo; without it, one by stb_image_write and one that libjpeg-turbo wrote.
#include "data/decode/decode.h"
#include "tests/fuzz/pictures/seeds.h"

#if BAREVISION_TURBOJPEG
// clang-format off
#include <cstdio>  // jpeglib.h needs its types
#include <jpeglib.h>
// clang-format on
#include <cstdlib>
#else
#define STB_IMAGE_WRITE_STATIC
#define STB_IMAGE_WRITE_IMPLEMENTATION
#define STBI_WRITE_NO_STDIO
#pragma GCC diagnostic ignored "-Wunused-function"
#include <stb/stb_image_write.h>
#endif

namespace bv::test::fuzz {
namespace {

#if BAREVISION_TURBOJPEG
struct Settings {
  int width, height, components = 3, sampling = 2;
  bool progressive = false, arithmetic = false;
  int restart = 0, orientation = 1;
};

std::string write_jpeg(const Settings& s) {
  jpeg_compress_struct jpeg{};
  jpeg_error_mgr error{};
  jpeg.err = jpeg_std_error(&error);
  jpeg_create_compress(&jpeg);
  unsigned char* memory = nullptr;
  unsigned long bytes = 0;
  jpeg_mem_dest(&jpeg, &memory, &bytes);
  jpeg.image_width = JDIMENSION(s.width), jpeg.image_height = JDIMENSION(s.height);
  jpeg.input_components = s.components;
  jpeg.in_color_space = s.components == 1 ? JCS_GRAYSCALE : s.components == 3 ? JCS_RGB : JCS_CMYK;
  jpeg_set_defaults(&jpeg);
  jpeg_set_quality(&jpeg, 70, TRUE);
  jpeg.arith_code = s.arithmetic;
  jpeg.optimize_coding = !s.arithmetic;
  jpeg.restart_interval = unsigned(s.restart);
  if (s.components == 3)
    jpeg.comp_info[0].h_samp_factor = jpeg.comp_info[0].v_samp_factor = s.sampling;
  if (s.progressive) jpeg_simple_progression(&jpeg);
  jpeg_start_compress(&jpeg, TRUE);
  if (s.orientation > 1) {
    const std::string exif = from_hex(
        "457869660000"
        "49492a0008000000"
        "0100"
        "12010300010000000" +
        std::to_string(s.orientation) + "00000000000000");
    jpeg_write_marker(&jpeg, JPEG_APP0 + 1, reinterpret_cast<const JOCTET*>(exif.data()),
                      unsigned(exif.size()));
  }
  std::string row;
  for (int y = 0; y < s.height; ++y) {
    row.clear();
    for (int x = 0; x < s.width * s.components; ++x) row += char(x * 5 + y * 3 + x * y % 40);
    auto* samples = reinterpret_cast<JSAMPROW>(row.data());
    jpeg_write_scanlines(&jpeg, &samples, 1);
  }
  jpeg_finish_compress(&jpeg);
  const std::string file(reinterpret_cast<const char*>(memory), bytes);
  jpeg_destroy_compress(&jpeg);
  std::free(memory);
  return file;
}
#else
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
  for (const Settings& s : {
           Settings{.width = 33, .height = 21},
           Settings{.width = 16, .height = 16, .sampling = 1},
           Settings{.width = 40, .height = 24, .progressive = true},
           Settings{.width = 17, .height = 9, .sampling = 1, .progressive = true},
           Settings{.width = 23, .height = 23, .components = 1, .progressive = true},
           Settings{.width = 19, .height = 18, .components = 1},
           Settings{.width = 24, .height = 16, .components = 4},
           Settings{.width = 24, .height = 16, .components = 4, .progressive = true},
           Settings{.width = 48, .height = 32, .restart = 2},
           Settings{.width = 48, .height = 32, .progressive = true, .restart = 1},
           Settings{.width = 20, .height = 12, .orientation = 6},
           Settings{.width = 24, .height = 24, .arithmetic = true},
           Settings{.width = 24, .height = 24, .progressive = true, .arithmetic = true},
       })
    files.push_back(write_jpeg(s));
  return files;
#else
  return {baseline_jpeg(), from_hex(progressive_jpeg)};
#endif
}

}  // namespace bv::test::fuzz

#include "tests/data/encode_jpeg.h"

#if BAREVISION_TURBOJPEG
// clang-format off
#include <cstdio>  // jpeglib.h needs its types
#include <jpeglib.h>
// clang-format on
#include <cstdlib>
#include <vector>

namespace bv::test {
namespace {

// A TIFF directory of one tag.
void write_orientation(jpeg_compress_struct& jpeg, int orientation) {
  std::vector<JOCTET> exif = {'E', 'x', 'i', 'f', 0,    0, 'I', 'I', 42, 0, 8, 0,
                              0,   0,   1,   0,   0x12, 1, 3,   0,   1,  0, 0, 0};
  exif.push_back(JOCTET(orientation));
  exif.resize(exif.size() + 7);
  jpeg_write_marker(&jpeg, JPEG_APP0 + 1, exif.data(), unsigned(exif.size()));
}

void write_rows(jpeg_compress_struct& jpeg, const JpegPicture& p) {
  std::vector<uint8_t> row(size_t(p.width) * size_t(p.components));
  for (int y = 0; y < p.height; ++y) {
    for (int i = 0; i < int(row.size()); ++i)
      row[size_t(i)] = p.sample ? p.sample(y, i / p.components, i % p.components)
                                : uint8_t(i * 5 + y * 3 + i * y % 40);
    JSAMPROW samples = row.data();
    jpeg_write_scanlines(&jpeg, &samples, 1);
  }
}

}  // namespace

std::string encode_jpeg(const JpegPicture& p) {
  jpeg_compress_struct jpeg{};
  jpeg_error_mgr error{};
  jpeg.err = jpeg_std_error(&error);
  jpeg_create_compress(&jpeg);
  unsigned char* memory = nullptr;
  unsigned long bytes = 0;
  jpeg_mem_dest(&jpeg, &memory, &bytes);
  jpeg.image_width = JDIMENSION(p.width), jpeg.image_height = JDIMENSION(p.height);
  jpeg.input_components = p.components;
  jpeg.in_color_space = p.components == 1 ? JCS_GRAYSCALE : p.components == 3 ? JCS_RGB : JCS_CMYK;
  jpeg_set_defaults(&jpeg);
  jpeg_set_quality(&jpeg, p.quality, TRUE);
  jpeg.arith_code = p.arithmetic;
  jpeg.optimize_coding = !p.arithmetic;
  jpeg.restart_interval = unsigned(p.restart);
  if (p.components == 3) {
    jpeg.comp_info[0].h_samp_factor = p.sampling_x;
    jpeg.comp_info[0].v_samp_factor = p.sampling_y;
  }
  if (p.progressive) jpeg_simple_progression(&jpeg);
  jpeg_start_compress(&jpeg, TRUE);
  if (p.orientation > 1) write_orientation(jpeg, p.orientation);
  write_rows(jpeg, p);
  jpeg_finish_compress(&jpeg);
  std::string file(reinterpret_cast<const char*>(memory), bytes);
  jpeg_destroy_compress(&jpeg);
  std::free(memory);
  return file;
}

}  // namespace bv::test
#else
std::string bv::test::encode_jpeg(const JpegPicture&) { return ""; }
#endif

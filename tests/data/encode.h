// Small WebP and TIFF files, written by their libraries; "" if the build lacks them.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace bv::test {

// TIFF 6.0 tags and samples. Rows are padded to whole bytes; 16-bit samples are in host byte order.
struct TiffPage {
  int width = 0, height = 0;
  std::vector<uint8_t> samples = {};  // plane by plane if `planar`
  int bits = 8, samples_per_pixel = 3;
  int photometric = 2;  // RGB; 0: grey, 0 is white; 1: grey; 3: palette; 5: inks; 6: YCbCr
  int compression = 1;  // none; 4: CCITT; 5: LZW; 7: JPEG; 8: Deflate; 32773: PackBits
  int extra = -1;       // meaning of the last sample: 0 anything, 1 premultiplied alpha, 2 alpha
  int orientation = 1;
  int rows_per_strip = 0;  // 0: all
  int tile = 0;            // side of a tile; 0: strips
  bool planar = false;
  const char* mode = "w";  // "wb": big-endian, "w8": BigTIFF
};
std::string encode_tiff(const std::vector<TiffPage>& pages);

std::string encode_webp(int width, int height, std::span<const uint8_t> rgba, bool lossless);
std::string webp_chunk(const std::string& name, const std::string& content);
// The chunks of a WebP file without its header, and the file that has these chunks.
std::string webp_chunks(const std::string& file);
std::string webp_file(const std::string& chunks);
// The start of an extended WebP file: flags (8: Exif, 16: alpha, 2: animation) and size.
std::string webp_canvas(int flags, int width, int height);
// An animation whose first frame is this WebP file, at an even position on the canvas.
std::string webp_animation(const std::string& frame, int width, int height, int x, int y,
                           int canvas_width, int canvas_height);

}  // namespace bv::test

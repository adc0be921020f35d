// The parts of decode_image (data/dataset.h). Errors are BadImage.
#pragma once
#include <cstdint>
#include <mutex>
#include <span>

#include "data/dataset.h"

namespace bv {

// Refuses a header that claims no pixels, more than any photo has, or more than a file of its size
// can hold, before anything of that size is allocated.
void check_image_size(int64_t width, int64_t height, size_t file_bytes);

// To be held while decoding takes this much memory: large images are decoded one at a time, so that
// many workers don't each hold a huge one.
[[nodiscard]] std::unique_lock<std::mutex> wait_if_large(int64_t bytes);

// 1 (grey), 2 (grey, alpha), 3 or 4 (RGB, alpha) channels to RGB, over white.
Image to_rgb(const uint8_t* pixels, int width, int height, int channels);

// The Orientation tag (1-8) of an Exif block (a TIFF file without pixels); 1 if absent or damaged.
int exif_orientation(std::span<const uint8_t> tiff);
Image upright(Image stored, int orientation);

// JPEG by libjpeg-turbo if the build has it, else by stb_image. Both need a walk over the markers
// first: neither decoder reports a truncated file reliably.
constexpr bool have_turbojpeg = BAREVISION_TURBOJPEG;

struct JpegInfo {
  int width = 0, height = 0, components = 0;
  int orientation = 1;
  int64_t samples = 0;                  // of all components, in whole blocks
  bool multiple_scans = false;          // every coefficient is in memory until the last scan
  bool baseline_or_progressive = true;  // Huffman-coded DCT; else arithmetic, lossless, ...
  bool adobe = false;                   // has Adobe's APP14
  bool lacks_tables = false;            // a scan uses a Huffman or quantisation table never defined
};

// Walks the markers up to the end of the image. Refuses: no frame, truncated, too large, too many
// scans, Huffman tables beyond their bounds (which stb_image doesn't check).
JpegInfo inspect_jpeg(std::span<const uint8_t> file);

// Decodes, not yet upright, scaled down by 2, 4 or 8 while the shorter side stays at or above
// at_least (0: full size). Only if have_turbojpeg.
Image decode_jpeg_turbo(std::span<const uint8_t> file, const JpegInfo&, int at_least);

// The same at full size through stb_image; refuses arithmetic coding and missing tables.
Image decode_jpeg_stb(std::span<const uint8_t> file, const JpegInfo&);

// PNG, BMP and GIF (first image), upright; refuses any other format.
Image decode_stb(std::span<const uint8_t> file);

// Walks a PNG's chunks: sizes, names, checksums, end. Returns its Exif orientation.
int inspect_png(std::span<const uint8_t> file);

// Refuses a GIF that is cut off, or whose data stands for many more pixels than it has.
void inspect_gif(std::span<const uint8_t> file);

// PPM and PGM of 8 or 16 bits.
Image decode_pnm(std::span<const uint8_t> file);

}  // namespace bv

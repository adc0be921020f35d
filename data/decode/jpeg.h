// JPEG by libjpeg-turbo if the build has it, else by stb_image. Both need a walk over the markers
// first: neither decoder reports a truncated file reliably.
#pragma once
#include <cstdint>
#include <span>

#include "data/dataset.h"

namespace bv {

struct JpegInfo {
  int width = 0, height = 0, components = 0;
  int orientation = 1;
  bool baseline_or_progressive = true;  // Huffman-coded DCT; else arithmetic, lossless, ...
  bool adobe = false;                   // has Adobe's APP14
  bool lacks_tables = false;            // a scan uses a Huffman or quantisation table never defined
};

// Walks the markers up to the end of the image. Throws BadImage: no frame, truncated, too large.
JpegInfo inspect_jpeg(std::span<const uint8_t> file);

constexpr bool have_turbojpeg = BAREVISION_TURBOJPEG;

// Decodes, not yet upright, scaled down by 2, 4 or 8 while the shorter side stays at or above
// at_least (0: full size). Only if have_turbojpeg.
Image decode_jpeg_turbo(std::span<const uint8_t> file, const JpegInfo&, int at_least);

// The same at full size through stb_image; refuses arithmetic coding and missing tables.
Image decode_jpeg_stb(std::span<const uint8_t> file, const JpegInfo&);

}  // namespace bv

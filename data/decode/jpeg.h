// JPEG by libjpeg-turbo where the build has it; stb_image (data/decode/stb.h) reads it as well. Both need
// what a walk over the markers finds: neither decoder reports a cut file reliably.
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

// Walks the markers up to the end of the image. Throws BadImage: no frame, cut off, too large.
JpegInfo inspect_jpeg(std::span<const uint8_t> file);

constexpr bool have_turbojpeg = BAREVISION_TURBOJPEG;

// Decodes, not yet upright; scaled down by 2, 4 or 8 as long as the shorter side keeps at_least
// (0: full size). Only where have_turbojpeg.
Image decode_jpeg_turbo(std::span<const uint8_t> file, const JpegInfo&, int at_least);

// The same at full size through stb_image; refuses arithmetic coding and missing tables.
Image decode_jpeg_stb(std::span<const uint8_t> file, const JpegInfo&);

}  // namespace bv

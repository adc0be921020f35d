#include "tests/data/encode.h"

#if BAREVISION_TIFF
#include <tiffio.h>
#endif
#if BAREVISION_WEBP
#include <webp/encode.h>
#endif

#include <algorithm>
#include <cstdio>
#include <stdexcept>

namespace bv::test {
namespace {

std::string little(uint64_t value, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text += static_cast<char>(value >> 8 * i);
  return text;
}

}  // namespace

#if BAREVISION_TIFF
namespace {

struct Memory {
  std::string bytes;
  size_t at = 0;
};
Memory& memory(thandle_t handle) { return *static_cast<Memory*>(handle); }

tmsize_t read(thandle_t handle, void* out, tmsize_t count) {
  Memory& m = memory(handle);
  const size_t n = m.at < m.bytes.size() ? m.bytes.copy(static_cast<char*>(out), count, m.at) : 0;
  m.at += n;
  return static_cast<tmsize_t>(n);
}
tmsize_t write(thandle_t handle, void* data, tmsize_t count) {
  Memory& m = memory(handle);
  const auto n = static_cast<size_t>(count);
  m.bytes.resize(std::max(m.bytes.size(), m.at + n));
  m.bytes.replace(m.at, n, static_cast<const char*>(data), n);
  m.at += n;
  return count;
}
toff_t seek(thandle_t handle, toff_t offset, int from) {
  Memory& m = memory(handle);
  return m.at = offset + (from == SEEK_CUR ? m.at : from == SEEK_END ? m.bytes.size() : 0);
}
int close(thandle_t) { return 0; }
toff_t size(thandle_t handle) { return memory(handle).bytes.size(); }

void set_tags(TIFF* tiff, const TiffPage& p) {
  TIFFSetField(tiff, TIFFTAG_IMAGEWIDTH, p.width);
  TIFFSetField(tiff, TIFFTAG_IMAGELENGTH, p.height);
  TIFFSetField(tiff, TIFFTAG_BITSPERSAMPLE, p.bits);
  TIFFSetField(tiff, TIFFTAG_SAMPLESPERPIXEL, p.samples_per_pixel);
  TIFFSetField(tiff, TIFFTAG_PHOTOMETRIC, p.photometric);
  TIFFSetField(tiff, TIFFTAG_COMPRESSION, p.compression);
  TIFFSetField(tiff, TIFFTAG_ORIENTATION, p.orientation);
  TIFFSetField(tiff, TIFFTAG_PLANARCONFIG, p.planar ? PLANARCONFIG_SEPARATE : PLANARCONFIG_CONTIG);
  const auto extra = static_cast<uint16_t>(p.extra);
  if (p.extra >= 0) TIFFSetField(tiff, TIFFTAG_EXTRASAMPLES, 1, &extra);
  if (p.tile > 0) {
    TIFFSetField(tiff, TIFFTAG_TILEWIDTH, p.tile);
    TIFFSetField(tiff, TIFFTAG_TILELENGTH, p.tile);
  } else {
    TIFFSetField(tiff, TIFFTAG_ROWSPERSTRIP, p.rows_per_strip ? p.rows_per_strip : p.height);
  }
  if (p.photometric == PHOTOMETRIC_PALETTE) {
    std::vector<uint16_t> colours(size_t{1} << p.bits);
    for (size_t i = 0; i < colours.size(); ++i) colours[i] = static_cast<uint16_t>(257 * (i % 256));
    TIFFSetField(tiff, TIFFTAG_COLORMAP, colours.data(), colours.data(), colours.data());
  }
  if (p.photometric == PHOTOMETRIC_YCBCR) {
    TIFFSetField(tiff, TIFFTAG_YCBCRSUBSAMPLING, 1, 1);
    TIFFSetField(tiff, TIFFTAG_JPEGCOLORMODE, JPEGCOLORMODE_RGB);
  }
}

void written(tmsize_t result) {
  if (result < 0) throw std::logic_error("libtiff refuses to write that");
}

// A tile's rows are parts of the image's rows; beyond the image they stay 0.
void write_tiles(TIFF* tiff, const TiffPage& p) {
  const int pixel = p.samples_per_pixel * p.bits / 8;
  for (int y = 0; y < p.height; y += p.tile)
    for (int x = 0; x < p.width; x += p.tile) {
      std::vector<uint8_t> tile(static_cast<size_t>(p.tile * p.tile * pixel));
      for (int row = 0; row < std::min(p.tile, p.height - y); ++row)
        std::copy_n(&p.samples[static_cast<size_t>(((y + row) * p.width + x) * pixel)],
                    std::min(p.tile, p.width - x) * pixel,
                    &tile[static_cast<size_t>(row * p.tile * pixel)]);
      written(TIFFWriteTile(tiff, tile.data(), static_cast<uint32_t>(x), static_cast<uint32_t>(y),
                            0, 0));
    }
}

void write_rows(TIFF* tiff, const TiffPage& p) {
  const int planes = p.planar ? p.samples_per_pixel : 1;
  const auto row = static_cast<size_t>(TIFFScanlineSize(tiff));
  std::vector<uint8_t> samples = p.samples;  // libtiff swaps bytes in place
  samples.resize(row * static_cast<size_t>(p.height * planes));
  for (int plane = 0; plane < planes; ++plane)
    for (int y = 0; y < p.height; ++y)
      written(TIFFWriteScanline(tiff, &samples[row * static_cast<size_t>(plane * p.height + y)],
                                static_cast<uint32_t>(y), static_cast<uint16_t>(plane)));
}

}  // namespace

std::string encode_tiff(const std::vector<TiffPage>& pages) {
  Memory file;
  TIFF* tiff = TIFFClientOpen("a test's", pages.at(0).mode, &file, read, write, seek, close, size,
                              nullptr, nullptr);
  for (const TiffPage& page : pages) {
    set_tags(tiff, page);
    page.tile > 0 ? write_tiles(tiff, page) : write_rows(tiff, page);
    TIFFWriteDirectory(tiff);
  }
  TIFFClose(tiff);
  return file.bytes;
}
#else
std::string encode_tiff(const std::vector<TiffPage>&) { return ""; }
#endif

#if BAREVISION_WEBP
std::string encode_webp(int width, int height, std::span<const uint8_t> rgba, bool lossless) {
  uint8_t* bytes = nullptr;
  const size_t size = lossless
                          ? WebPEncodeLosslessRGBA(rgba.data(), width, height, 4 * width, &bytes)
                          : WebPEncodeRGBA(rgba.data(), width, height, 4 * width, 90, &bytes);
  std::string file(reinterpret_cast<const char*>(bytes), size);
  WebPFree(bytes);
  return file;
}
#else
std::string encode_webp(int, int, std::span<const uint8_t>, bool) { return ""; }
#endif

std::string webp_chunk(const std::string& name, const std::string& content) {
  return name + little(content.size(), 4) + content + std::string(content.size() % 2, '\0');
}

std::string webp_chunks(const std::string& file) { return file.size() > 12 ? file.substr(12) : ""; }

std::string webp_file(const std::string& chunks) {
  return "RIFF" + little(4 + chunks.size(), 4) + "WEBP" + chunks;
}

std::string webp_canvas(int flags, int width, int height) {
  return webp_chunk("VP8X", little(static_cast<uint64_t>(flags), 4) +
                                little(static_cast<uint64_t>(width - 1), 3) +
                                little(static_cast<uint64_t>(height - 1), 3));
}

std::string webp_animation(const std::string& frame, int width, int height, int x, int y,
                           int canvas_width, int canvas_height) {
  const auto three = [](int n) { return little(static_cast<uint64_t>(n), 3); };
  return webp_file(
      webp_canvas(2 + 16, canvas_width, canvas_height) + webp_chunk("ANIM", std::string(6, '\0')) +
      webp_chunk("ANMF", three(x / 2) + three(y / 2) + three(width - 1) + three(height - 1) +
                             three(100) + '\0' + webp_chunks(frame)));
}

}  // namespace bv::test

#include "data/decode/decode.h"

#if BAREVISION_WEBP
#include <webp/decode.h>
#include <webp/demux.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>
#include <string>

namespace bv {
namespace {

using Demuxer = std::unique_ptr<WebPDemuxer, void (*)(WebPDemuxer*)>;

int orientation_of(WebPDemuxer* demuxer) {
  WebPChunkIterator chunk{};
  int orientation = 1;
  if (WebPDemuxGetChunk(demuxer, "EXIF", 1, &chunk)) {
    std::span<const uint8_t> exif(chunk.chunk.bytes, chunk.chunk.size);
    constexpr char jpegs_name[] = "Exif\0";  // some writers keep JPEG's prefix
    if (exif.size() >= sizeof jpegs_name &&
        std::memcmp(exif.data(), jpegs_name, sizeof jpegs_name) == 0)
      exif = exif.subspan(sizeof jpegs_name);
    orientation = exif_orientation(exif);
  }
  WebPDemuxReleaseChunkIterator(&chunk);
  return orientation;
}

[[noreturn]] void fail(VP8StatusCode status) {
  if (status == VP8_STATUS_OUT_OF_MEMORY) throw std::bad_alloc();
  throw BadImage(status == VP8_STATUS_NOT_ENOUGH_DATA ? "WebP data is cut off"
                                                      : "damaged or unsupported WebP");
}

Image decode_frame(const WebPData& data, int width, int height) {
  WebPDecoderConfig config;
  if (!WebPInitDecoderConfig(&config)) throw BadImage("WebP: another version of libwebp");
  if (const auto status = WebPGetFeatures(data.bytes, data.size, &config.input)) fail(status);
  if (config.input.width != width || config.input.height != height)
    throw BadImage("damaged WebP (an image of the wrong size)");
  const int channels = config.input.has_alpha ? 4 : 3;
  Image pixels{height, width, std::vector<uint8_t>(size_t(channels) * width * height)};
  config.output.colorspace = channels == 4 ? MODE_RGBA : MODE_RGB;
  config.output.is_external_memory = 1;
  config.output.u.RGBA = {pixels.pixels.data(), channels * width, pixels.pixels.size()};
  if (const auto status = WebPDecode(data.bytes, data.size, &config)) fail(status);
  return channels == 3 ? std::move(pixels) : to_rgb(pixels.pixels.data(), width, height, channels);
}

// The first frame of an animation may cover only a part of the canvas.
Image paste(const Image& frame, int x, int y, int width, int height) {
  Image image = black_image(height, width);
  std::ranges::fill(image.pixels, 255);
  for (int row = 0; row < frame.height; ++row)
    std::copy_n(&frame.pixels[3 * size_t(row) * frame.width], 3 * frame.width,
                &image.pixels[3 * (size_t(y + row) * width + x)]);
  return image;
}

}  // namespace

WebpInfo inspect_webp(FileView& file) {
  constexpr size_t header = 12;  // RIFF, size, WEBP
  const auto riff = file.at(0, header);
  if (riff.size() < header) throw BadImage("WebP data is cut off");
  uint64_t size = 8;
  for (size_t i = 0; i < 4; ++i) size += uint64_t{riff[4 + i]} << 8 * i;
  if (size > file.size()) throw BadImage("WebP data is cut off");
  const auto start = file.at(0, 4096);
  WebPBitstreamFeatures features;
  if (const auto status = WebPGetFeatures(start.data(), start.size(), &features)) fail(status);
  check_image_size(features.width, features.height, file.size());
  return {features.width, features.height};
}

Image decode_webp(std::span<const uint8_t> file) {
  FileView view(file);
  const WebpInfo info = inspect_webp(view);
  const int64_t count = int64_t{info.width} * info.height;
  const auto lock = wait_if_large(12 * count);
  const WebPData data{file.data(), file.size()};
  const Demuxer demuxer(WebPDemux(&data), WebPDemuxDelete);
  WebPIterator first{};
  if (!demuxer || !WebPDemuxGetFrame(demuxer.get(), 1, &first)) throw BadImage("damaged WebP");
  const std::unique_ptr<WebPIterator, void (*)(WebPIterator*)> release(&first,
                                                                       WebPDemuxReleaseIterator);
  const bool inside =
      first.x_offset + first.width <= info.width && first.y_offset + first.height <= info.height;
  if (!inside) throw BadImage("damaged WebP (an image beyond its canvas)");
  Image image = decode_frame(first.fragment, first.width, first.height);
  if (first.width != info.width || first.height != info.height)
    image = paste(image, first.x_offset, first.y_offset, info.width, info.height);
  return upright(std::move(image), orientation_of(demuxer.get()));
}

}  // namespace bv
#endif

// Decodes the requested part of an image file.
#include <algorithm>
#include <cmath>
#include <string>

#include "data/decode/decode.h"

namespace bv {
namespace {

using Bytes = std::span<const uint8_t>;

// The rectangle of a photo of this size that is the image: `of`, or all if `of` is empty.
Region require_inside(const Region& of, int height, int width) {
  if (of == Region{}) return {.height = height, .width = width};
  if (of.top < 0 || of.left < 0 || of.height < 1 || of.width < 1 || of.height > height - of.top ||
      of.width > width - of.left)
    throw BadImage("its box of " + std::to_string(of.width) + "x" + std::to_string(of.height) +
                   " pixels at " + std::to_string(of.left) + "," + std::to_string(of.top) +
                   " is not inside the photo's " + std::to_string(width) + "x" +
                   std::to_string(height));
  return of;
}

Image cut(Image image, const Region& r) {
  if (r == Region{.height = image.height, .width = image.width}) return image;
  Image part = black_image(r.height, r.width);
  const size_t row = 3 * size_t(r.width);
  for (int y = 0; y < r.height; ++y)
    std::copy_n(&image.pixels[3 * ((size_t(r.top) + y) * image.width + r.left)], row,
                &part.pixels[y * row]);
  return part;
}

View choose_whole(Image photo, const RequestFn& choose, const Region& of) {
  const Region r = require_inside(of, photo.height, photo.width);
  return whole_view(cut(std::move(photo), r), choose);
}

// One axis of a photo at dct_scale/8: the image's extent and the requested part, in scaled pixels.
struct Along {
  int length;        // of the photo
  int begin, count;  // of the image
  int first, wanted;
  double offset;  // of the image's start within its first pixel

  // `from_end`: coordinates are counted from the stored photo's other end.
  Along(int full, int image_begin, int image_length, double part_begin, double part_length,
        int dct_scale, bool from_end)
      : length(scaled_length(full, dct_scale)) {
    const double scale = dct_scale / 8.0;
    const double at = image_begin * scale + (from_end ? length - full * scale : 0);
    begin = static_cast<int>(std::floor(at));
    count = std::min(length, static_cast<int>(std::ceil(at + image_length * scale))) - begin;
    offset = at - begin;
    const double low = std::floor(part_begin * scale + offset);
    const double high = std::ceil((part_begin + part_length) * scale + offset);
    first = static_cast<int>(std::clamp<double>(low, 0, count - 1));
    wanted = static_cast<int>(std::clamp<double>(high, first + 1, count)) - first;
  }
};

[[maybe_unused]] View decode_jpeg_part(Bytes file, const JpegInfo& info, const RequestFn& choose,
                                       const Region& of, std::string* warning) {
  const Orientation turn = orientation_of(info.orientation);
  const int height = turn.transpose ? info.width : info.height;
  const int width = turn.transpose ? info.height : info.width;
  const Region image = require_inside(of, height, width);
  const DecodeRequest wanted = choose(image.height, image.width);
  const int n = dct_scale_for(wanted.shrink);
  const Along y(height, image.top, image.height, wanted.part.top, wanted.part.height, n,
                turn.flip_y);
  const Along x(width, image.left, image.width, wanted.part.left, wanted.part.width, n,
                turn.flip_x);
  Region stored{
      .top = y.begin + y.first, .left = x.begin + x.first, .height = y.wanted, .width = x.wanted};
  if (turn.flip_y) stored.top = y.length - stored.top - stored.height;
  if (turn.flip_x) stored.left = x.length - stored.left - stored.width;
  if (turn.transpose) std::swap(stored.top, stored.left), std::swap(stored.height, stored.width);
  return {.pixels = upright(decode_jpeg_turbo(file, info, n, stored, warning), info.orientation),
          .at = {.top = y.first, .left = x.first, .height = y.wanted, .width = x.wanted},
          .height = y.count,
          .width = x.count,
          .full_height = image.height,
          .full_width = image.width,
          .dct_scale = n,
          .fixed = false,
          .top = y.offset,
          .left = x.offset};
}

Image decode_whole(Bytes file, Format format) {
  if (format == Format::jpeg) {
    const JpegInfo info = inspect_jpeg(file);
    return upright(decode_jpeg_stb(file, info), info.orientation);
  }
  if (format == Format::pnm) return decode_pnm(file);
  if (format == Format::bmp) return decode_bmp(file);
  if constexpr (have_webp)
    if (format == Format::webp) return decode_webp(file);
  if constexpr (have_tiff)
    if (format == Format::tiff) return decode_tiff(file);
  return decode_stb(file, format);
}

}  // namespace

View decode_view(Bytes file, const RequestFn& choose, const Region& of, std::string* warning) {
  if (file.empty()) throw BadImage("the file is empty");
  if (file.size() > size_t{1} << 30) throw BadImage("the file is larger than 1 GiB");
  const Format format = format_of(file);
  require_decoder(format, file.first(std::min(file.size(), stranger_bytes)));
  if constexpr (have_turbojpeg)
    if (format == Format::jpeg)
      return decode_jpeg_part(file, inspect_jpeg(file), choose, of, warning);
  return choose_whole(decode_whole(file, format), choose, of);
}

Image decode_image(Bytes file, int at_least, std::string* warning) {
  const auto whole = [&](int height, int width) {
    return whole_image(height, width,
                       at_least > 0 ? double(std::min(height, width)) / at_least : 1);
  };
  return decode_view(file, whole, {}, warning).pixels;
}

}  // namespace bv

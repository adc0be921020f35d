// PPM and PGM, which need no library: numbers as text, then the samples.
#include <algorithm>
#include <cctype>
#include <string>

#include "data/decode/decode.h"

namespace bv {
namespace {

using Bytes = std::span<const uint8_t>;

// A number in the header, after white space and comments. Stops reading digits at 2^20, since every
// larger number is refused.
int64_t header_number(Bytes file, size_t& at) {
  while (at < file.size() && (std::isspace(file[at]) || file[at] == '#')) {
    if (file[at] == '#')
      while (at < file.size() && file[at] != '\n' && file[at] != '\r') ++at;
    else
      ++at;
  }
  int64_t value = 0;
  for (; at < file.size() && std::isdigit(file[at]) && value < (1 << 20); ++at)
    value = 10 * value + (file[at] - '0');
  return value;
}

}  // namespace

PnmInfo inspect_pnm(FileView& file) {
  constexpr size_t max_comments = 4096;
  const Bytes start = file.at(0, max_comments);
  size_t at = 2;
  const int64_t width = header_number(start, at), height = header_number(start, at);
  const int64_t largest = header_number(start, at);
  check_image_size(width, height, file.size());
  if (largest < 1 || largest > 65535)
    throw BadImage("damaged PNM (largest sample " + std::to_string(largest) + ")");
  const PnmInfo info{.width = int(width),
                     .height = int(height),
                     .channels = start[1] == '6' ? 3 : 1,
                     .largest = int(largest),
                     .samples_at = at + 1};
  const uint64_t bytes = uint64_t(width * height * info.channels) * (largest > 255 ? 2 : 1);
  if (file.size() < info.samples_at + bytes) throw BadImage("PNM data is cut off");
  return info;
}

Image decode_pnm(Bytes file) {
  FileView view(file);
  const PnmInfo info = inspect_pnm(view);
  const Bytes data = file.subspan(info.samples_at);
  const size_t samples = size_t(info.width) * info.height * info.channels;
  const auto lock = wait_if_large(int64_t(samples) + int64_t{3} * info.width * info.height);
  std::vector<uint8_t> scaled(samples);
  for (size_t i = 0; i < samples; ++i) {
    const int64_t value = info.largest > 255 ? data[2 * i] << 8 | data[2 * i + 1] : data[i];
    scaled[i] = uint8_t(std::min((value * 255 + info.largest / 2) / info.largest, int64_t{255}));
  }
  return to_rgb(scaled.data(), info.width, info.height, info.channels);
}

}  // namespace bv

// PPM and PGM, which need no library: numbers as text, then the samples.
#include <algorithm>
#include <cctype>
#include <string>

#include "data/decode/decode.h"

namespace bv {
namespace {

using Bytes = std::span<const uint8_t>;

// A number of the header, with the white space and comments before it. Large ones are cut short,
// but stay too large.
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

Image decode_pnm(Bytes file) {
  size_t at = 2;
  const int64_t width = header_number(file, at), height = header_number(file, at);
  const int64_t largest = header_number(file, at);
  check_image_size(width, height, file.size());
  if (largest < 1 || largest > 65535)
    throw BadImage("damaged PNM (largest sample " + std::to_string(largest) + ")");
  const size_t channels = file[1] == '6' ? 3 : 1, width_of_sample = largest > 255 ? 2 : 1;
  const size_t samples = size_t(width) * size_t(height) * channels;
  if (file.size() - at < 1 + samples * width_of_sample) throw BadImage("PNM data is cut off");
  const Bytes data = file.subspan(at + 1);
  const auto lock = wait_if_large(int64_t(samples) + 3 * width * height);
  std::vector<uint8_t> scaled(samples);
  for (size_t i = 0; i < samples; ++i) {
    const int64_t value = width_of_sample == 2 ? data[2 * i] << 8 | data[2 * i + 1] : data[i];
    scaled[i] = uint8_t(std::min((value * 255 + largest / 2) / largest, int64_t{255}));
  }
  return to_rgb(scaled.data(), int(width), int(height), int(channels));
}

}  // namespace bv

// PBM, PGM and PPM, which need no library: numbers as text, then the samples, as text (P1 to P3) or
// bytes (P4 to P6).
#include <algorithm>
#include <cctype>
#include <string>

#include "data/decode/decode.h"

namespace bv {
namespace {

using Bytes = std::span<const uint8_t>;

constexpr const char* cut_off = "PNM data is cut off";

void skip_blanks(Bytes file, size_t& at) {
  while (at < file.size() && (std::isspace(file[at]) || file[at] == '#')) {
    if (file[at] == '#')
      while (at < file.size() && file[at] != '\n' && file[at] != '\r') ++at;
    else
      ++at;
  }
}

// A number after white space and comments. Stops reading digits at 2^20, since every larger number
// is refused.
int64_t number_at(Bytes file, size_t& at) {
  skip_blanks(file, at);
  int64_t value = 0;
  for (; at < file.size() && std::isdigit(file[at]) && value < (1 << 20); ++at)
    value = 10 * value + (file[at] - '0');
  return value;
}

// A sample as text. The bits of a bitmap need no blanks between them; 1 is black.
int text_sample(Bytes file, size_t& at, const PnmInfo& info) {
  skip_blanks(file, at);
  if (at >= file.size()) throw BadImage(cut_off);
  if (!std::isdigit(file[at])) throw BadImage("damaged PNM (a sample that is not a number)");
  if (info.bits) return file[at++] == '0';
  return static_cast<int>(std::min<int64_t>(number_at(file, at), info.largest));
}

}  // namespace

PnmInfo inspect_pnm(FileView& file) {
  constexpr size_t max_comments = 4096;
  const Bytes start = file.at(0, max_comments);
  const char kind = static_cast<char>(start[1]);
  const bool bits = kind == '1' || kind == '4', text = kind <= '3';
  size_t at = 2;
  const int64_t width = number_at(start, at), height = number_at(start, at);
  const int64_t largest = bits ? 1 : number_at(start, at);
  check_image_size(width, height, file.size());
  if (largest < 1 || largest > 65535)
    throw BadImage("damaged PNM (largest sample " + std::to_string(largest) + ")");
  const PnmInfo info{.width = int(width),
                     .height = int(height),
                     .channels = kind == '3' || kind == '6' ? 3 : 1,
                     .largest = int(largest),
                     .text = text,
                     .bits = bits,
                     .samples_at = at + 1};
  const auto samples = uint64_t(width * height * info.channels);
  const uint64_t bytes = text   ? (bits ? samples : 2 * samples - 1)  // at least
                         : bits ? uint64_t((width + 7) / 8 * height)
                                : samples * (largest > 255 ? 2 : 1);
  if (file.size() < info.samples_at + bytes) throw BadImage(cut_off);
  return info;
}

Image decode_pnm(Bytes file) {
  FileView view(file);
  const PnmInfo info = inspect_pnm(view);
  const Bytes data = file.subspan(info.samples_at);
  const size_t row = size_t(info.width) * info.channels, samples = row * info.height;
  const auto lock = wait_if_large(int64_t(samples) + int64_t{3} * info.width * info.height);
  std::vector<uint8_t> scaled(samples);
  size_t at = 0;
  for (size_t i = 0; i < samples; ++i) {
    const size_t x = i % row, y = i / row;
    const int64_t value = info.text   ? text_sample(data, at, info)
                          : info.bits ? !(data[y * ((row + 7) / 8) + x / 8] >> (7 - x % 8) & 1)
                          : info.largest > 255 ? data[2 * i] << 8 | data[2 * i + 1]
                                               : data[i];
    scaled[i] = uint8_t(std::min((value * 255 + info.largest / 2) / info.largest, int64_t{255}));
  }
  return to_rgb(scaled.data(), info.width, info.height, info.channels);
}

}  // namespace bv

// Walks the markers of a JPEG file without decoding its pixels.
#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>

#include "data/decode/decode.h"

namespace bv {
namespace {

using Bytes = std::span<const uint8_t>;

constexpr int soi = 0xD8, eoi = 0xD9, sos = 0xDA, dqt = 0xDB, dht = 0xC4, dac = 0xCC, jpg = 0xC8;
constexpr int app1 = 0xE1, app14 = 0xEE, sof_baseline = 0xC0, sof_progressive = 0xC2;

bool starts_with(Bytes segment, std::string_view what) {
  return segment.size() >= what.size() &&
         std::memcmp(segment.data(), what.data(), what.size()) == 0;
}

class MarkerWalk {
 public:
  explicit MarkerWalk(Bytes file) : file_(file) {}

  JpegInfo run() {
    size_t at = 2;
    while (true) {
      const int marker = next_marker(at);
      if (marker == eoi) break;
      if (marker < 0 || at + 2 > file_.size()) throw BadImage("JPEG data is cut off");
      const size_t length = file_[at] << 8 | file_[at + 1];
      if (length < 2 || length > file_.size() - at) throw BadImage("JPEG data is cut off");
      segment(marker, file_.subspan(at + 2, length - 2));
      at += length;
    }
    if (info_.components == 0 || scans_ == 0) throw BadImage("JPEG without an image");
    return info_;
  }

 private:
  // Moves `at` past the next marker that has a segment, or EOI, skipping coded data and junk; -1 if
  // there is none.
  int next_marker(size_t& at) const {
    while (at < file_.size()) {
      const void* found = std::memchr(&file_[at], 0xFF, file_.size() - at);
      if (!found) return -1;
      at = static_cast<const uint8_t*>(found) - file_.data();
      while (at < file_.size() && file_[at] == 0xFF) ++at;
      if (at == file_.size()) return -1;
      const int marker = file_[at++];
      const bool alone = marker <= 1 || (marker >= 0xD0 && marker <= soi);
      if (!alone) return marker;
    }
    return -1;
  }

  void segment(int marker, Bytes s) {
    if (marker == app1 && starts_with(s, {"Exif\0\0", 6}) && !exif_) {
      info_.orientation = exif_orientation(s.subspan(6));
      exif_ = true;
    } else if (marker == app14 && starts_with(s, "Adobe")) {
      info_.adobe = true;
    } else if (marker == dqt) {
      for (size_t i = 0; i < s.size(); i += s[i] >> 4 ? 129 : 65)
        quantisation_ |= 1u << (s[i] & 15);
    } else if (marker == dht) {
      huffman(s);
    } else if (marker == sos) {
      scan(s);
    } else if (marker >= 0xC0 && marker <= 0xCF && marker != jpg && marker != dac) {
      frame(marker, s);
    }
  }

  void huffman(Bytes s) {
    for (size_t i = 0; i < s.size();) {
      if (s.size() - i < 17) throw BadImage("damaged JPEG Huffman table");
      const int id = s[i] & 15;
      (s[i] >> 4 ? ac_ : dc_) |= 1u << id;
      size_t values = 0;
      for (int k = 1; k <= 16; ++k) values += s[i + k];
      if (values > 256 || values > s.size() - i - 17) throw BadImage("damaged JPEG Huffman table");
      i += 17 + values;
    }
  }

  void frame(int marker, Bytes s) {
    if (info_.components != 0) throw BadImage("JPEG with two frame headers");
    if (s.size() < 6 || s.size() < 6 + 3 * size_t{s[5]})
      throw BadImage("damaged JPEG frame header");
    sof_ = marker;
    info_.baseline_or_progressive = marker <= sof_progressive;
    info_.height = s[1] << 8 | s[2];
    info_.width = s[3] << 8 | s[4];
    info_.components = s[5];
    check_image_size(info_.width, info_.height, file_.size());
    components_ = s.subspan(6, 3 * size_t{s[5]});
    int h_max = 1, v_max = 1;
    for (int c = 0; c < info_.components; ++c) {
      const int h = h_sampling(c), v = v_sampling(c);
      if (h < 1 || h > 4 || v < 1 || v > 4) throw BadImage("damaged JPEG frame header");
      h_max = std::max(h_max, h), v_max = std::max(v_max, v);
      used_quantisation_ |= 1u << (components_[3 * c + 2] & 15);
    }
    units_ = ((info_.width - 1) / (8 * h_max) + 1) * int64_t{(info_.height - 1) / (8 * v_max) + 1};
    for (int c = 0; c < info_.components; ++c) info_.samples += samples(c);
  }

  int h_sampling(int c) const { return components_[3 * c + 1] >> 4; }
  int v_sampling(int c) const { return components_[3 * c + 1] & 15; }
  int64_t samples(int c) const { return 64 * units_ * h_sampling(c) * v_sampling(c); }

  // Each scan visits all blocks of its components, however few bytes it has. Progressive encoders
  // write up to six scans of a component, and some a few more; sequential ones write one.
  void count_work(Bytes scan_components) {
    constexpr int64_t any_image = 1 << 26;
    const int64_t scans_per_sample =
        (sof_ & 3) == 2 ? 16 : 2;  // progressive frames are C2, C6, ...
    for (size_t i = 0; i < scan_components.size(); i += 2)
      for (int c = 0; c < info_.components; ++c)
        if (components_[3 * c] == scan_components[i]) work_ += samples(c);
    if (work_ > std::max(any_image, scans_per_sample * info_.samples))
      throw BadImage("JPEG of " + std::to_string(info_.width) + "x" + std::to_string(info_.height) +
                     " pixels with more than " + std::to_string(scans_per_sample) +
                     " scans of each");
  }

  void scan(Bytes s) {
    // Progressive files have a dozen scans; thousands are an attack on the decoder.
    if (++scans_ > 500) throw BadImage("JPEG with more than 500 scans");
    if (s.empty() || s.size() < 4 + 2 * size_t{s[0]}) throw BadImage("damaged JPEG scan header");
    info_.multiple_scans |= scans_ > 1 || s[0] < info_.components || sof_ == sof_progressive;
    count_work(s.subspan(1, 2 * size_t{s[0]}));
    const int first = s[1 + 2 * s[0]], refinement = s[3 + 2 * s[0]] >> 4;
    const bool progressive = sof_ == sof_progressive;
    const bool needs_dc = first == 0 && refinement == 0, needs_ac = first > 0 || !progressive;
    for (int c = 0; c < s[0]; ++c) {
      const int tables = s[2 + 2 * c];
      if (needs_dc && !(dc_ >> (tables >> 4) & 1)) info_.lacks_tables = true;
      if (needs_ac && !(ac_ >> (tables & 15) & 1)) info_.lacks_tables = true;
    }
    if (used_quantisation_ & ~quantisation_) info_.lacks_tables = true;
  }

  Bytes file_;
  JpegInfo info_;
  Bytes components_;   // of the frame: id, sampling factors, quantisation table
  int64_t units_ = 0;  // MCUs, if all components are interleaved
  int64_t work_ = 0;   // samples visited by all scans
  int sof_ = sof_baseline, scans_ = 0;
  bool exif_ = false;
  uint32_t dc_ = 0, ac_ = 0, quantisation_ = 0, used_quantisation_ = 0;  // bit i: table i
};

}  // namespace

JpegInfo inspect_jpeg(Bytes file) { return MarkerWalk(file).run(); }

}  // namespace bv

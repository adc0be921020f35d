// Small data sets, for tests.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "tests/files.h"

namespace bv::test {

inline void write_file(const std::string& path, std::span<const uint8_t> bytes) {
  write_text(path, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

// A PPM whose pixels are a smooth function of `tag` and the position.
inline void write_ppm(const std::string& path, int width, int height, int tag) {
  std::string text = "P6\n" + std::to_string(width) + " " + std::to_string(height) + "\n255\n";
  for (int y = 0; y < height; ++y)
    for (int x = 0; x < width; ++x)
      for (int c = 0; c < 3; ++c)
        text.push_back(static_cast<char>((tag * 37 + 3 * x + 5 * y + 60 * c) % 256));
  write_text(path, text);
}

// CIFAR-10 records: record i has label (first + i) % 10 and pixels that count up from it.
inline std::vector<uint8_t> cifar_records(int count, int first) {
  std::vector<uint8_t> bytes;
  for (int i = first; i < first + count; ++i) {
    bytes.push_back(static_cast<uint8_t>(i % 10));
    for (int p = 0; p < 3072; ++p) bytes.push_back(static_cast<uint8_t>(i + p * (p / 1024 + 1)));
  }
  return bytes;
}

// CIFAR-100 records: record i has the fine label (first + i) % 100, of coarse label 19.
inline std::vector<uint8_t> cifar100_records(int count, int first) {
  std::vector<uint8_t> bytes;
  for (int i = first; i < first + count; ++i) {
    bytes.insert(bytes.end(), {19, static_cast<uint8_t>(i % 100)});
    for (int p = 0; p < 3072; ++p) bytes.push_back(static_cast<uint8_t>(i + p * (p / 1024 + 1)));
  }
  return bytes;
}

// fine_label_names.txt, with the empty line at its end that the original has.
inline std::string cifar100_names() {
  std::string text;
  for (int i = 0; i < 100; ++i) text += "kind_" + std::to_string(i) + "\n";
  return text + "\n";
}

}  // namespace bv::test

// Encodes JPEGs with libjpeg-turbo; "" if the build lacks it.
#pragma once
#include <cstdint>
#include <functional>
#include <string>

namespace bv::test {

struct JpegPicture {
  int width = 0, height = 0;
  int components = 3;                  // 1: grey, 3: RGB, 4: CMYK
  int sampling_x = 2, sampling_y = 2;  // of RGB's luma; its chroma has 1
  int quality = 70;
  bool progressive = false, arithmetic = false;
  int restart = 0;  // MCUs
  int orientation = 1;
  // Returns a sample; default: a pattern.
  std::function<uint8_t(int y, int x, int c)> sample = {};
};
std::string encode_jpeg(const JpegPicture&);

}  // namespace bv::test

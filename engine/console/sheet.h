// A contact sheet: groups of square pictures side by side, with lines of text under each picture.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "data/dataset.h"

namespace bv {

struct Caption {
  std::vector<uint8_t> pixels;  // [size, size, 3]
  std::vector<std::string> lines;
};
using PictureGroup = std::vector<Caption>;

// `title`: lines above all pictures. Small pictures are enlarged to make room for their text.
Image draw_sheet(const std::vector<std::string>& title, std::vector<PictureGroup>, int size);

}  // namespace bv

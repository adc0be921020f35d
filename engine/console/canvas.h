// A picture to draw on: rectangles, smaller pictures, lines of text.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "data/image/image.h"

namespace bv {

using Color = std::array<uint8_t, 3>;
inline constexpr Color ink = {30, 30, 30}, paper = {250, 250, 250};
inline constexpr int line_height = 22;  // height of a line of text, in pixels

int width_of(std::string words);  // width of a line of text, in pixels

class Canvas {
 public:
  Canvas(int height, int width);
  // Pixels outside the canvas are ignored.
  void fill(int top, int left, int height, int width, const Color&);
  // Draws a square picture, each pixel enlarged to `zoom` x `zoom`. It must fit inside the canvas.
  void picture(int top, int left, const std::vector<uint8_t>& pixels, int size, int zoom);
  // The font has ASCII only.
  void text(int top, int left, std::string words, const Color& color = ink);
  Image take() { return std::move(image_); }

 private:
  uint8_t* at(int y, int x);
  Image image_;
};

}  // namespace bv

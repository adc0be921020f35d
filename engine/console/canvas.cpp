#include "engine/console/canvas.h"

#include <algorithm>
#include <utility>

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"
#include <stb/stb_easy_font.h>
#pragma GCC diagnostic pop

namespace bv {
namespace {

constexpr int text_scale = line_height / 11;

}  // namespace

int width_of(std::string words) { return text_scale * stb_easy_font_width(words.data()); }

Canvas::Canvas(int height, int width) : image_(black_image(height, width)) {
  fill(0, 0, height, width, paper);
}

void Canvas::fill(int top, int left, int height, int width, const Color& color) {
  for (int y = std::max(0, top); y < std::min(image_.height, top + height); ++y)
    for (int x = std::max(0, left); x < std::min(image_.width, left + width); ++x)
      std::ranges::copy(color, at(y, x));
}

void Canvas::picture(int top, int left, const std::vector<uint8_t>& pixels, int size, int zoom) {
  for (int y = 0; y < size * zoom; ++y)
    for (int x = 0; x < size * zoom; ++x)
      std::copy_n(&pixels[3 * (size_t(y / zoom) * static_cast<size_t>(size) +
                               static_cast<size_t>(x / zoom))],
                  3, at(top + y, left + x));
}

void Canvas::text(int top, int left, std::string words, const Color& color) {
  struct Vertex {
    float x, y, z;
    uint8_t rgba[4];
  };
  std::vector<std::array<Vertex, 4>> quads(64 * words.size() + 1);
  const int count = stb_easy_font_print(0, 0, words.data(), nullptr, quads.data(),
                                        static_cast<int>(quads.size() * sizeof quads[0]));
  const auto scaled = [](float x) { return static_cast<int>(x) * text_scale; };
  for (int i = 0; i < count; ++i) {
    const auto& [a, b, c, d] = quads[static_cast<size_t>(i)];
    fill(top + scaled(a.y), left + scaled(a.x), scaled(c.y) - scaled(a.y),
         scaled(c.x) - scaled(a.x), color);
  }
}

uint8_t* Canvas::at(int y, int x) {
  return &image_
              .pixels[3 * (size_t(y) * static_cast<size_t>(image_.width) + static_cast<size_t>(x))];
}

}  // namespace bv

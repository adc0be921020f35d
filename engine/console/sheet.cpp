#include "engine/console/sheet.h"

#include <algorithm>
#include <array>
#include <utility>

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"
#include <stb/stb_easy_font.h>
#pragma GCC diagnostic pop

#include "base/text.h"

namespace bv {

namespace {

constexpr int text_scale = 2, line_height = 11 * text_scale, margin = 24, gap = 8;
constexpr int min_width = 208;   // of a picture: room for 16 letters
constexpr int max_width = 1500;  // of a sheet, if one group isn't wider
constexpr uint8_t paper = 250;
using Color = std::array<uint8_t, 3>;
constexpr Color ink = {30, 30, 30};

int width_of(std::string words) { return text_scale * stb_easy_font_width(words.data()); }

// The font is of ASCII. A line that is too wide continues on the next; such a word is cut off.
std::vector<std::string> fitted(const std::vector<std::string>& lines, int width) {
  std::vector<std::string> result;
  for (std::string line : lines) {
    for (char& c : line)
      if (c < ' ' || c > '~') c = '?';
    bool first = true;
    for (std::string word : split(line, ' ')) {
      while (!word.empty() && width_of(word) > width) word.pop_back();
      if (first || width_of(result.back() + " " + word) > width)
        result.push_back(word);
      else
        result.back() += " " + word;
      first = false;
    }
  }
  return result;
}

class Canvas {
 public:
  Canvas(int height, int width) : image_(black_image(height, width)) {
    std::ranges::fill(image_.pixels, paper);
  }

  void fill(int top, int left, int height, int width, const Color& color) {
    for (int y = std::max(0, top); y < std::min(image_.height, top + height); ++y)
      for (int x = std::max(0, left); x < std::min(image_.width, left + width); ++x)
        std::ranges::copy(color, at(y, x));
  }

  void picture(int top, int left, const std::vector<uint8_t>& pixels, int size, int zoom) {
    for (int y = 0; y < size * zoom; ++y)
      for (int x = 0; x < size * zoom; ++x)
        std::copy_n(&pixels[3 * (size_t(y / zoom) * static_cast<size_t>(size) +
                                 static_cast<size_t>(x / zoom))],
                    3, at(top + y, left + x));
  }

  void text(int top, int left, std::string words) {
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
           scaled(c.x) - scaled(a.x), ink);
    }
  }

  Image take() { return std::move(image_); }

 private:
  uint8_t* at(int y, int x) {
    return &image_.pixels[3 *
                          (size_t(y) * static_cast<size_t>(image_.width) + static_cast<size_t>(x))];
  }
  Image image_;
};

}  // namespace

Image draw_sheet(const std::vector<std::string>& title, std::vector<PictureGroup> groups,
                 int size) {
  const int zoom = std::max(1, (min_width + size - 1) / size), side = size * zoom;
  const int pictures = groups.empty() ? 1 : static_cast<int>(groups[0].size());
  const int group_width = pictures * (side + gap) - gap + margin;
  const int across = std::max(1, (max_width - margin) / group_width);
  const int columns = std::min(across, std::max(1, static_cast<int>(groups.size())));
  size_t max_lines = 0;
  for (PictureGroup& group : groups)
    for (Caption& caption : group) {
      caption.lines = fitted(caption.lines, side);
      max_lines = std::max(max_lines, caption.lines.size());
    }
  const int row_height = side + gap + static_cast<int>(max_lines) * line_height + margin;
  const int rows = (static_cast<int>(groups.size()) + columns - 1) / columns;
  const std::vector<std::string> head = fitted(title, columns * group_width - margin);
  const int above = margin + static_cast<int>(head.size()) * line_height + gap;

  Canvas canvas(above + rows * row_height, margin + columns * group_width);
  const auto lines = [&](const std::vector<std::string>& text, int top, int left) {
    for (size_t i = 0; i < text.size(); ++i)
      canvas.text(top + static_cast<int>(i) * line_height, left, text[i]);
  };
  lines(head, margin, margin);
  for (size_t g = 0; g < groups.size(); ++g) {
    const int row = static_cast<int>(g) / columns, column = static_cast<int>(g) % columns;
    for (size_t p = 0; p < groups[g].size(); ++p) {
      const int top = above + row * row_height;
      const int left = margin + column * group_width + static_cast<int>(p) * (side + gap);
      canvas.picture(top, left, groups[g][p].pixels, size, zoom);
      lines(groups[g][p].lines, top + side + gap, left);
    }
  }
  return canvas.take();
}

}  // namespace bv

#include "engine/console/sheet.h"

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "engine/console/canvas.h"

namespace bv {

namespace {

constexpr int margin = 24, gap = 8;
constexpr int min_width = 208;   // of a picture; has room for 16 letters
constexpr int max_width = 1500;  // of a sheet, unless a single group is wider

// The font has ASCII only. A line that is too wide is wrapped, a word that is too wide cut off.
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

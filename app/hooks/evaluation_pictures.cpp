#include "app/hooks/evaluation_pictures.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/text.h"
#include "data/image/resize.h"
#include "engine/console/canvas.h"
#include "engine/console/class_report.h"
#include "engine/console/sheet.h"

namespace bv {
namespace {

constexpr int side = 320, thumbnail = 96, gap = 8, widest_name = 240;  // pixels
constexpr int most_named = 40;  // number of classes up to which names and counts have room
constexpr double dark = 0.5;    // from this share on, white text is easier to read

Color shaded(const Color& full, double share) {
  Color color;
  for (size_t c = 0; c < color.size(); ++c)
    color[c] = static_cast<uint8_t>(std::lround(255 - share * (255 - full[c])));
  return color;
}

std::string ascii(std::string text) {
  for (char& c : text)
    if (c < ' ' || c > '~') c = '?';
  return text;
}

// Crops the centred square and scales it.
std::vector<uint8_t> square(const Image& image) {
  const int shorter = std::min(image.height, image.width);
  const Box box{.top = (image.height - shorter) / 2.0,
                .left = (image.width - shorter) / 2.0,
                .height = double(shorter),
                .width = double(shorter)};
  std::vector<uint8_t> pixels(size_t{3} * thumbnail * thumbnail);
  Resizer().run(image, box, thumbnail, thumbnail, pixels.data());
  return pixels;
}

}  // namespace

Image confusion_picture(std::span<const Prediction> predictions,
                        std::span<const std::string> classes) {
  constexpr Color right = {0, 90, 170}, wrong = {200, 80, 0}, white = {255, 255, 255};
  const std::vector<int64_t> counts = confusion_matrix(predictions, classes.size());
  const int n = static_cast<int>(classes.size());
  const bool named = n <= most_named;
  std::vector<std::string> names;  // "3 tulips", for the rows
  int names_width = 0, cell = std::max(1, side / n);
  if (named) {
    cell = std::max(cell, line_height);
    for (const int64_t count : counts)
      cell = std::max(cell, width_of(std::to_string(count)) + 2 * gap);
    for (int k = 0; k < n; ++k) {
      names.push_back(std::to_string(k) + " " + ascii(classes[size_t(k)]));
      while (width_of(names.back()) > widest_name) names.back().pop_back();
      names_width = std::max(names_width, width_of(names.back()) + gap);
    }
  }
  const std::vector<std::string> title = {"rows: true class", "columns: predicted"};
  const int above = gap + (static_cast<int>(title.size()) + (named ? 1 : 0)) * line_height,
            left = gap + names_width;
  Canvas canvas(above + n * cell + gap, std::max(left + n * cell, side) + gap);
  for (size_t i = 0; i < title.size(); ++i)
    canvas.text(gap + static_cast<int>(i) * line_height, gap, title[i]);
  for (int label = 0; label < n; ++label) {
    const auto row = std::span(counts).subspan(size_t(label) * classes.size(), classes.size());
    const int64_t images = std::max<int64_t>(std::reduce(row.begin(), row.end()), 1);
    const int top = above + label * cell, text_top = top + (cell - line_height) / 2 + 4;
    if (named) {
      canvas.text(above - line_height, left + label * cell + gap, std::to_string(label));
      canvas.text(text_top, gap, names[size_t(label)]);
    }
    for (int said = 0; said < n; ++said) {
      const int64_t count = row[size_t(said)];
      const double share = double(count) / double(images);
      const int x = left + said * cell;
      canvas.fill(top, x, cell, cell, shaded(said == label ? right : wrong, share));
      if (named && count > 0)
        canvas.text(text_top, x + gap, std::to_string(count), share > dark ? white : ink);
    }
  }
  return canvas.take();
}

Image mistakes_picture(const Run& run, size_t most) {
  const DataSets& data = run.setup.data;
  std::vector<PictureGroup> mistakes;
  for (const Prediction& p : surest_mistakes(run.trainer.predictions(), most)) try {
      mistakes.push_back({{square(data.val->image(p.index, thumbnail)),
                           {"predicted " + data.classes[size_t(p.top)] + ", " +
                                std::to_string(std::lround(100 * p.probability)) + " %",
                            "actual " + data.classes[size_t(p.label)]}}});
    } catch (const std::runtime_error&) {  // the file was removed after the evaluation
    }
  if (mistakes.empty()) return {};
  return draw_sheet({"most confident mistakes after step " + std::to_string(run.progress.step)},
                    std::move(mistakes), thumbnail);
}

}  // namespace bv

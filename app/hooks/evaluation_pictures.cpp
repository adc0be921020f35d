#include "app/hooks/evaluation_pictures.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "base/text.h"
#include "data/image/resize.h"
#include "engine/console/class_report.h"
#include "engine/console/sheet.h"

namespace bv {
namespace {

constexpr int side = 320, thumbnail = 96;  // pixels
using Color = std::array<uint8_t, 3>;

Color shaded(const Color& full, double share) {
  Color color;
  for (size_t c = 0; c < color.size(); ++c)
    color[c] = static_cast<uint8_t>(std::lround(255 - share * (255 - full[c])));
  return color;
}

// The centred square, scaled.
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

Image confusion_picture(std::span<const Prediction> predictions, size_t classes) {
  constexpr Color right = {0, 90, 170}, wrong = {200, 80, 0};
  const std::vector<int64_t> counts = confusion_matrix(predictions, classes);
  const int n = static_cast<int>(classes), cell = std::max(1, side / n);
  Image picture = black_image(n * cell, n * cell);
  for (int label = 0; label < n; ++label) {
    const auto row = std::span(counts).subspan(size_t(label) * classes, classes);
    const int64_t images = std::max<int64_t>(std::reduce(row.begin(), row.end()), 1);
    for (int said = 0; said < n; ++said) {
      const Color color =
          shaded(said == label ? right : wrong, double(row[size_t(said)]) / double(images));
      for (int y = label * cell; y < (label + 1) * cell; ++y)
        for (int x = said * cell; x < (said + 1) * cell; ++x)
          std::ranges::copy(color, &picture.pixels[3 * (size_t(y) * picture.width + x)]);
    }
  }
  return picture;
}

Image mistakes_picture(const Run& run, size_t most) {
  const DataSets& data = run.setup.data;
  std::vector<PictureGroup> mistakes;
  for (const Prediction& p : surest_mistakes(run.trainer.predictions(), most)) try {
      mistakes.push_back({{square(data.val->image(p.index, thumbnail)),
                           {"predicted " + data.classes[size_t(p.top)] + ", " +
                                std::to_string(std::lround(100 * p.probability)) + " %",
                            "actual " + data.classes[size_t(p.label)]}}});
    } catch (const BadImage&) {  // it went away since it was evaluated
    }
  if (mistakes.empty()) return {};
  return draw_sheet({"surest mistakes after step " + std::to_string(run.progress.step)},
                    std::move(mistakes), thumbnail);
}

}  // namespace bv

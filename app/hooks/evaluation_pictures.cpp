#include "app/hooks/evaluation_pictures.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <functional>
#include <map>

#include "base/text.h"
#include "data/image/resize.h"
#include "engine/console/class_report.h"

namespace bv {
namespace {

constexpr int thumbnail = 96, columns = 4;
constexpr size_t most_shown = 40;  // columns of the matrix; pairs of more classes

using Counts = std::map<std::pair<int, int>, int64_t>;  // by true and predicted class

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

// Punctuation as character references: no name ends a cell or is taken for markup.
std::string markdown(const std::string& name) {
  std::string text;
  for (const char c : printable(name))
    text += std::ispunct(static_cast<unsigned char>(c)) ? "&#" + std::to_string(c) + ";"
                                                        : std::string(1, c);
  return text;
}

std::string row(std::span<const std::string> cells) { return "| " + join(cells, " | ") + " |\n"; }

std::string header(std::span<const std::string> cells) {
  return row(cells) + row(std::vector<std::string>(cells.size(), "---"));
}

std::string confused_pairs(const Counts& counts, std::span<const std::string> names) {
  std::vector<ConfusedImages> pairs;
  for (const auto& [pair, images] : counts)
    if (pair.first != pair.second) pairs.push_back({pair.first, pair.second, images});
  std::ranges::stable_sort(pairs, std::greater(), &ConfusedImages::images);
  if (pairs.size() > most_shown) pairs.resize(most_shown);
  std::string table = header(std::vector<std::string>{"true class", "predicted", "images"});
  for (const auto& [label, top, images] : pairs)
    table += row(std::vector{names[size_t(label)], names[size_t(top)], std::to_string(images)});
  return table;
}

}  // namespace

Image tiled(const std::vector<uint8_t>& pictures, int size) {
  const size_t line = 3 * static_cast<size_t>(size);
  const int count = static_cast<int>(pictures.size() / (line * size_t(size)));
  Image out = black_image((count + columns - 1) / columns * size, columns * size);
  for (int i = 0; i < count; ++i)
    for (int y = 0; y < size; ++y) {
      const size_t to_line = static_cast<size_t>(i / columns * size + y) * columns;
      std::copy_n(&pictures[static_cast<size_t>(i * size + y) * line], line,
                  &out.pixels[(to_line + static_cast<size_t>(i % columns)) * line]);
    }
  return out;
}

std::string confusion_table(std::span<const Prediction> predictions,
                            std::span<const std::string> classes) {
  std::vector<std::string> names;
  for (const std::string& name : classes) names.push_back(markdown(name));
  Counts counts;
  for (const Prediction& p : predictions) ++counts[{p.label, p.top}];
  if (names.size() > most_shown) return confused_pairs(counts, names);
  std::vector<std::string> cells = names;
  cells.insert(cells.begin(), "true class");
  std::string table = header(cells);
  for (int label = 0; label < std::ssize(names); ++label) {
    cells = {names[size_t(label)]};
    for (int top = 0; top < std::ssize(names); ++top)
      cells.push_back(std::to_string(counts[{label, top}]));
    table += row(cells);
  }
  return table;
}

Mistakes mistakes_of(const Run& run, size_t most) {
  const DataSets& data = run.setup.data;
  std::vector<uint8_t> pictures;
  std::string table =
      header(std::vector<std::string>{"picture", "predicted", "probability", "true class"});
  int number = 0;
  for (const Prediction& p : surest_mistakes(run.trainer.predictions(), most)) try {
      const std::vector<uint8_t> pixels = square(data.val->image(p.index, thumbnail));
      pictures.insert(pictures.end(), pixels.begin(), pixels.end());
      table += row(std::vector{std::to_string(++number), markdown(data.classes[size_t(p.top)]),
                               std::to_string(std::lround(100 * p.probability)) + " %",
                               markdown(data.classes[size_t(p.label)])});
    } catch (const std::runtime_error&) {  // the file was removed after the evaluation
    }
  return {number ? tiled(pictures, thumbnail) : Image{}, table};
}

}  // namespace bv

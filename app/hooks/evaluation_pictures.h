// Pictures and tables of an evaluation, from the trainer's predictions.
#pragma once
#include "data/dataset.h"
#include "engine/run/run.h"

namespace bv {

// Square pictures [count, size, size, 3] side by side, four in a row; the rest of the last row is
// black.
Image tiled(const std::vector<uint8_t>& pictures, int size);

// The confusion matrix as a Markdown table: rows are true classes, columns predicted ones. Of more
// than 40 classes, the pairs that are confused most.
std::string confusion_table(std::span<const Prediction>, std::span<const std::string> classes);

// The `most` wrong predictions with the highest probability: their images, and a Markdown table
// with predicted and true class of each. 0 x 0 pixels if there are none.
struct Mistakes {
  Image picture;
  std::string table;
};
Mistakes mistakes_of(const Run&, size_t most);

}  // namespace bv

// Pictures of an evaluation, drawn from the trainer's predictions.
#pragma once
#include "data/dataset.h"
#include "engine/run/run.h"

namespace bv {

// The confusion matrix: rows are true classes, columns predicted ones; a cell is darker the larger
// its share of the row. Blue: right, orange: wrong. Up to 40 classes are labelled, and their cells
// show image counts.
Image confusion_picture(std::span<const Prediction>, std::span<const std::string> classes);

// The `most` wrong predictions with the highest probability, captioned with predicted and true
// class. 0 x 0 pixels if there are none.
Image mistakes_picture(const Run&, size_t most);

}  // namespace bv

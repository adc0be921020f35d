// An evaluation as pictures, from the trainer's predictions.
#pragma once
#include "data/dataset.h"
#include "engine/run/run.h"

namespace bv {

// A cell for each pair of classes, rows the true class, columns the predicted one; the darker, the
// larger its share of the row. Blue: right, orange: wrong. Up to 40 classes have their names, and
// the cells their numbers of images.
Image confusion_picture(std::span<const Prediction>, std::span<const std::string> classes);

// The wrong answers that the model was surest of, at most `most`, with the predicted and the true
// class. 0 x 0: there are none.
Image mistakes_picture(const Run&, size_t most);

}  // namespace bv

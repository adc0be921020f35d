// Per-class report of an evaluation: precision, recall, F1, and the confusion matrix.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/inference/prediction.h"

namespace bv {

// A score is 0 if its denominator is 0: the class never occurs, or is never predicted.
struct ClassScores {
  double precision = 0, recall = 0, f1 = 0;
  int64_t support = 0;  // images of the class
};
std::vector<ClassScores> class_scores(std::span<const Prediction>, size_t classes);

struct ConfusedImages {
  int label, top;  // the true class, and the predicted one
  int64_t images;
};
std::vector<ClassScores> class_scores(std::span<const ConfusedImages>, size_t classes);

// The text of scikit-learn's classification_report(y, p, target_names=classes, digits=2), called
// with labels=range(len(classes)) if a class occurs neither in y nor in p.
std::string class_report(std::span<const Prediction>, std::span<const std::string> classes);

// [classes, classes]: number of images of the row's class predicted as the column's class.
std::vector<int64_t> confusion_matrix(std::span<const Prediction>, size_t classes);
// A header line with the class names, then a line per class.
std::string confusion_csv(std::span<const Prediction>, std::span<const std::string> classes);

}  // namespace bv

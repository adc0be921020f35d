// Report of an evaluation by class: precision, recall and F1, the confusion matrix.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/inference/prediction.h"

namespace bv {

// 0 where a quotient has no denominator: a class that never occurs, or is never predicted.
struct ClassScores {
  double precision = 0, recall = 0, f1 = 0;
  int64_t support = 0;  // images of the class
};
std::vector<ClassScores> class_scores(std::span<const Prediction>, size_t classes);

// The text of scikit-learn's classification_report(y, p, target_names=classes, digits=2), with
// labels=range(len(classes)) where one of them is neither in y nor in p.
std::string class_report(std::span<const Prediction>, std::span<const std::string> classes);

// [classes, classes]: how many images of the row's class are taken for the column's.
std::vector<int64_t> confusion_matrix(std::span<const Prediction>, size_t classes);
// A line for each class after one with their names.
std::string confusion_csv(std::span<const Prediction>, std::span<const std::string> classes);

}  // namespace bv

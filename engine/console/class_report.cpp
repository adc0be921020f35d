#include "engine/console/class_report.h"

#include <algorithm>
#include <cstdio>
#include <numeric>

namespace bv {
namespace {

double quotient(double numerator, double denominator) {
  return denominator == 0 ? 0 : numerator / denominator;
}

// Sums in NumPy's order: the order decides the last bits, and so whether 0.845 rounds up or down.
double numpy_sum(std::span<const double> x) {
  constexpr size_t block = 128, lanes = 8;
  if (x.size() > block) {
    const size_t half = x.size() / 2 / lanes * lanes;
    return numpy_sum(x.first(half)) + numpy_sum(x.subspan(half));
  }
  if (x.size() < lanes) return std::accumulate(x.begin(), x.end(), 0.0);
  double lane[lanes];
  std::copy_n(x.begin(), lanes, lane);
  size_t i = lanes;
  for (; i + lanes <= x.size(); i += lanes)
    for (size_t j = 0; j < lanes; ++j) lane[j] += x[i + j];
  const double sum =
      ((lane[0] + lane[1]) + (lane[2] + lane[3])) + ((lane[4] + lane[5]) + (lane[6] + lane[7]));
  return std::accumulate(x.begin() + static_cast<ptrdiff_t>(i), x.end(), sum);
}

struct Averages {
  double macro, weighted;
};
Averages averages(std::span<const ClassScores> scores, double ClassScores::*which) {
  std::vector<double> values, products;
  double images = 0;
  for (const ClassScores& s : scores) {
    values.push_back(s.*which);
    products.push_back(s.*which * static_cast<double>(s.support));
    images += static_cast<double>(s.support);
  }
  return {numpy_sum(values) / static_cast<double>(values.size()), numpy_sum(products) / images};
}

size_t columns(std::string_view utf8) {
  return static_cast<size_t>(
      std::ranges::count_if(utf8, [](unsigned char byte) { return (byte & 0xC0) != 0x80; }));
}

std::string right_aligned(const std::string& text, size_t width) {
  return std::string(width - std::min(width, columns(text)), ' ') + text;
}

// scikit-learn prints the number of images as a float when no prediction is right.
std::string support(int64_t images, int64_t hits) {
  return " " + right_aligned(std::to_string(images) + (hits == 0 ? ".0" : ""), 9) + "\n";
}

std::string figures(const ClassScores& s, int64_t hits) {
  char text[64];
  std::snprintf(text, sizeof text, "  %9.2f %9.2f %9.2f", s.precision, s.recall, s.f1);
  return text + support(s.support, hits);
}

// Quoted as in RFC 4180.
std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == text.npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + "\"";
}

}  // namespace

std::vector<ClassScores> class_scores(std::span<const Prediction> predictions, size_t classes) {
  std::vector<ConfusedImages> single;
  for (const Prediction& p : predictions) single.push_back({p.label, p.top, 1});
  return class_scores(single, classes);
}

std::vector<ClassScores> class_scores(std::span<const ConfusedImages> cells, size_t classes) {
  std::vector<int64_t> hits(classes), predicted(classes);
  std::vector<ClassScores> scores(classes);
  for (const auto& [label, top, images] : cells) {
    scores[static_cast<size_t>(label)].support += images;
    predicted[static_cast<size_t>(top)] += images;
    if (label == top) hits[static_cast<size_t>(top)] += images;
  }
  for (size_t k = 0; k < classes; ++k) {
    const auto hit = static_cast<double>(hits[k]), said = static_cast<double>(predicted[k]),
               is = static_cast<double>(scores[k].support);
    scores[k].precision = quotient(hit, said);
    scores[k].recall = quotient(hit, is);
    scores[k].f1 = quotient(2 * hit, is + said);
  }
  return scores;
}

std::string class_report(std::span<const Prediction> predictions,
                         std::span<const std::string> classes) {
  const std::vector<ClassScores> scores = class_scores(predictions, classes.size());
  const auto images = static_cast<int64_t>(predictions.size());
  const int64_t hits =
      std::ranges::count_if(predictions, [](const Prediction& p) { return p.label == p.top; });
  size_t width = std::string_view("weighted avg").size();
  for (const std::string& name : classes) width = std::max(width, columns(name));
  const auto row = [&](const std::string& name, const std::string& rest) {
    return right_aligned(name, width) + rest;
  };

  std::string text = row("", "  precision    recall  f1-score   support\n\n");
  for (size_t k = 0; k < classes.size(); ++k) text += row(classes[k], figures(scores[k], hits));
  char accuracy[64];
  std::snprintf(accuracy, sizeof accuracy, "%31.2f",
                quotient(static_cast<double>(hits), static_cast<double>(images)));
  text += "\n" + row("accuracy", accuracy + support(images, hits));
  const Averages precision = averages(scores, &ClassScores::precision),
                 recall = averages(scores, &ClassScores::recall),
                 f1 = averages(scores, &ClassScores::f1);
  text += row("macro avg", figures({precision.macro, recall.macro, f1.macro, images}, hits));
  return text + row("weighted avg",
                    figures({precision.weighted, recall.weighted, f1.weighted, images}, hits));
}

std::vector<int64_t> confusion_matrix(std::span<const Prediction> predictions, size_t classes) {
  std::vector<int64_t> matrix(classes * classes);
  for (const Prediction& p : predictions)
    ++matrix[static_cast<size_t>(p.label) * classes + static_cast<size_t>(p.top)];
  return matrix;
}

std::string confusion_csv(std::span<const Prediction> predictions,
                          std::span<const std::string> classes) {
  const std::vector<int64_t> matrix = confusion_matrix(predictions, classes.size());
  std::string text = "true\\predicted";
  for (const std::string& name : classes) text += "," + csv_field(name);
  text += "\n";
  for (size_t row = 0; row < classes.size(); ++row) {
    text += csv_field(classes[row]);
    for (size_t k = 0; k < classes.size(); ++k)
      text += "," + std::to_string(matrix[row * classes.size() + k]);
    text += "\n";
  }
  return text;
}

}  // namespace bv

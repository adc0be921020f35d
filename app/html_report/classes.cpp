// How well each class is recognised, and what it is taken for.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "app/html_report/markup/html.h"
#include "app/html_report/markup/pieces.h"
#include "app/html_report/sections.h"
#include "base/text.h"
#include "engine/console/class_report.h"

namespace bv {
namespace {

constexpr size_t max_listed = 200, max_in_matrix = 50, max_with_numbers = 16, max_pairs = 40;

std::vector<Prediction> predictions_of(const Evaluated& e) {
  std::vector<Prediction> all;
  for (const Confusion& c : e.images)
    all.insert(all.end(), static_cast<size_t>(c.images), {.label = c.label, .top = c.predicted});
  return all;
}

std::string fraction(double x) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3f", x);
  return text;
}

std::string score_table(const std::vector<ClassScores>& scores,
                        const std::vector<std::string>& classes) {
  std::vector<size_t> order(scores.size());
  for (size_t k = 0; k < order.size(); ++k) order[k] = k;
  std::ranges::stable_sort(order, {}, [&](size_t k) { return scores[k].f1; });
  order.resize(std::min(order.size(), max_listed));
  std::vector<std::vector<Cell>> rows;
  for (const size_t k : order) {
    const ClassScores& s = scores[k];
    rows.push_back({{escape_html(classes[k])},
                    {fraction(s.precision), true},
                    {fraction(s.recall), true},
                    {fraction(s.f1), true},
                    {std::to_string(s.support), true}});
  }
  const std::string left_out = order.size() < scores.size()
                                   ? note("The " + std::to_string(max_listed) + " classes of " +
                                          std::to_string(scores.size()) + " with the lowest F1.")
                                   : "";
  return left_out +
         table({{"class"}, {"precision", true}, {"recall", true}, {"F1", true}, {"images", true}},
               rows, rows.size() > 18);
}

// A cell's strength is its share of the row's images.
std::string matrix_cell(int64_t images, int64_t of_class, bool right, const std::string& words,
                        bool number) {
  if (images == 0) return "<td class=\"none\">" + std::string(number ? "·" : "") + "</td>";
  const double share = static_cast<double>(images) / static_cast<double>(of_class);
  char strength[32];
  // Even few mistakes must be visible.
  std::snprintf(strength, sizeof strength, "%.2f", right ? share : 0.15 + 0.85 * share);
  const bool full = (right ? share : 0.15 + 0.85 * share) > 0.55;
  return "<td class=\"" + std::string(right ? "hit" : "miss") + (full ? " full" : "") +
         "\" style=\"--v:" + strength + "\" title=\"" + words + "\">" +
         (number ? std::to_string(images) : "") + "</td>";
}

std::string matrix(const std::vector<int64_t>& counts, const std::vector<ClassScores>& scores,
                   const std::vector<std::string>& classes) {
  const size_t n = classes.size();
  std::string head = "<th></th>";
  for (const std::string& name : classes)
    head += element("th", "scope=\"col\"", element("div", "", escape_html(name)));
  std::string body;
  for (size_t row = 0; row < n; ++row) {
    std::string cells = element("th", "scope=\"row\"", escape_html(classes[row]));
    for (size_t k = 0; k < n; ++k) {
      const int64_t images = counts[row * n + k];
      cells += matrix_cell(
          images, scores[row].support, row == k,
          escape_html(std::to_string(images) + " of " + std::to_string(scores[row].support) + " " +
                      classes[row] + " taken for " + classes[k]),
          true);
    }
    body += element("tr", "", cells) + "\n";
  }
  return element(
      "div", "class=\"scroll\" tabindex=\"0\"",
      element("table", n > max_with_numbers ? "class=\"matrix small\"" : "class=\"matrix\"",
              element("thead", "", element("tr", "", head)) + element("tbody", "", body)));
}

std::string pairs(std::vector<Confusion> images, const std::vector<ClassScores>& scores,
                  const std::vector<std::string>& classes) {
  std::erase_if(images, [](const Confusion& c) { return c.label == c.predicted; });
  std::ranges::stable_sort(images, std::greater{}, &Confusion::images);
  if (images.size() > max_pairs) images.resize(max_pairs);
  std::vector<std::vector<Cell>> rows;
  for (const Confusion& c : images) {
    const int64_t all = scores[static_cast<size_t>(c.label)].support;
    rows.push_back({{escape_html(classes[static_cast<size_t>(c.label)])},
                    {escape_html(classes[static_cast<size_t>(c.predicted)])},
                    {std::to_string(c.images), true},
                    {percent(static_cast<double>(c.images) / static_cast<double>(all)), true}});
  }
  if (rows.empty()) return "";
  return note("The pairs of classes that are confused most.") +
         table({{"class"}, {"taken for"}, {"images", true}, {"of its class", true}}, rows,
               rows.size() > 18);
}

}  // namespace

std::string classes_section(const RunReport& run) {
  if (!run.facts || !run.facts->evaluated) return "";
  const Evaluated& e = *run.facts->evaluated;
  const std::vector<std::string>& classes = run.facts->classes;
  const std::vector<Prediction> predictions = predictions_of(e);
  if (predictions.empty()) return "";
  const std::vector<ClassScores> scores = class_scores(predictions, classes.size());
  const std::string when = "Of the validation images, after epoch " + std::to_string(e.epoch) +
                           " (step " + std::to_string(e.step) + ")" +
                           (e.averaged ? ", by the averaged weights" : "") + ". ";
  const std::string confused =
      classes.size() > max_in_matrix
          ? pairs(e.images, scores, classes)
          : note("Rows: what an image is; columns: what was said. Colour: share of the row.") +
                matrix(confusion_matrix(predictions, classes.size()), scores, classes);
  return section("Classes", note(when + "Lowest F1 first.") + score_table(scores, classes)) +
         section("Confusion", confused);
}

}  // namespace bv

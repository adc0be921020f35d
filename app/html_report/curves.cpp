// Charts over a run's steps: loss, accuracy, learning rate, loss scale, speed. Of several runs
// together, each has a colour; of one, each quantity.
#include <algorithm>
#include <cmath>
#include <set>

#include "app/html_report/markup/chart.h"
#include "app/html_report/markup/html.h"
#include "app/html_report/markup/pieces.h"
#include "app/html_report/sections.h"
#include "base/text.h"

namespace bv {
namespace {

constexpr int colors = 6;  // of the palette

// What runs are compared by: their steps, or epochs where these have different lengths.
class Abscissa {
 public:
  explicit Abscissa(std::span<const RunReport> runs) {
    std::set<double> lengths;
    for (const RunReport& run : runs) lengths.insert(steps_per_epoch(run));
    epochs_ = lengths.size() > 1 && *lengths.begin() > 0;
  }
  std::string name() const { return epochs_ ? "epoch" : "step"; }
  double operator()(const RunReport& run, double step) const {
    return epochs_ ? step / steps_per_epoch(run) : step;
  }

 private:
  // 0: not known.
  static double steps_per_epoch(const RunReport& run) {
    if (run.facts) return static_cast<double>(run.facts->updates_per_epoch);
    double most = 0;  // an epoch that was cut short has fewer
    const MetricTable& epochs = run.metrics.epochs;
    for (size_t row = 0; row < epochs.rows(); ++row)
      most = std::max(most, std::ceil(epochs.at("step", row) / epochs.at("epoch", row)));
    return most;
  }
  bool epochs_ = false;
};

struct Quantity {
  const char* key;
  const char* name;
  bool epoch;  // a column of epoch lines, else of step lines
  int color;
  Series::Style style;
  // null: a value that wasn't finite. Other keys: there was none, unless `beside` has a number.
  bool null_is_lost = false;
  const char* beside = nullptr;
};

struct Plan {
  const char* title;
  const char* unit;
  std::vector<Quantity> quantities;
  double factor = 1;
  std::optional<double> low = {}, high = {};
};

std::vector<Point> points(const RunReport& run, const Quantity& q, const Abscissa& x,
                          double factor) {
  const MetricTable& table = q.epoch ? run.metrics.epochs : run.metrics.steps;
  std::vector<Point> result;
  if (!table.has(q.key) && !q.null_is_lost) return result;
  for (size_t row = 0; row < table.rows(); ++row) {
    const double y = table.at(q.key, row);
    const bool lost = q.null_is_lost || (q.beside && !std::isnan(table.at(q.beside, row)));
    if (!std::isnan(y) || lost) result.push_back({x(run, table.at("step", row)), factor * y});
  }
  return result;
}

// A logarithmic scale where values are far apart.
AxisScale scale_of(const std::vector<Series>& curves) {
  double low = HUGE_VAL, high = 0;
  for (const Series& c : curves)
    for (const Point& p : c.points)
      if (std::isfinite(p.y)) low = std::min(low, p.y), high = std::max(high, p.y);
  return low > 0 && high > 20 * low ? AxisScale::log10 : AxisScale::linear;
}

std::vector<Series> curves_of(std::span<const RunReport> runs, const Plan& plan,
                              const Abscissa& x) {
  std::vector<Series> curves;
  for (size_t r = 0; r < runs.size(); ++r)
    for (const Quantity& q : plan.quantities) {
      const bool several = runs.size() > 1;
      // Of several runs, single steps hide one another.
      if (several && q.style == Series::faint && (q.epoch || runs[r].metrics.epochs.rows() > 1))
        continue;
      const int turn = static_cast<int>(r);
      const std::string name =
          several ? run_label(runs, r) +
                        (plan.quantities.size() > 1 ? std::string(", ") + q.name : std::string())
                  : q.name;
      curves.push_back({.name = name,
                        .points = points(runs[r], q, x, plan.factor),
                        .color = several ? turn % colors : q.color,
                        .style = q.style});
    }
  std::erase_if(curves, [](const Series& c) { return c.points.empty(); });
  return curves;
}

std::string chart(std::span<const RunReport> runs, const Plan& plan, const Abscissa& x,
                  bool logarithmic) {
  const std::vector<Series> curves = curves_of(runs, plan, x);
  return draw({.title = plan.title,
               .unit = plan.unit,
               .x_name = x.name(),
               .curves = curves,
               .scale = logarithmic ? scale_of(curves) : AxisScale::linear,
               .low = plan.low,
               .high = plan.high});
}

bool scales_loss(std::span<const RunReport> runs) {
  return std::ranges::any_of(runs, [](const RunReport& run) {
    const MetricTable& steps = run.metrics.steps;
    for (size_t row = 0; row < steps.rows(); ++row)
      if (steps.at("loss_scale", row) != 1 && !std::isnan(steps.at("loss_scale", row))) return true;
    return false;
  });
}

}  // namespace

std::string curves_section(std::span<const RunReport> runs) {
  const Abscissa x(runs);
  using enum Series::Style;
  const bool one = runs.size() == 1;
  const Series::Style train = one ? line : dashed, other = one ? line : dotted;
  std::string charts;
  charts += chart(runs,
                  {"Loss",
                   "",
                   {{"loss", "train, steps", false, 0, faint, true},
                    {"train_loss", "train, epochs", true, 0, train},
                    {"val_loss", "val", true, 1, line, false, "val_top1"},
                    {"ema_loss", "val, averaged", true, 2, other, false, "ema_top1"}}},
                  x, true);
  charts += chart(runs,
                  {"Accuracy",
                   "%",
                   {{"top1", "train top-1, steps", false, 0, faint},
                    {"train_top1", "train top-1, epochs", true, 0, train},
                    {"val_top1", "val top-1", true, 1, line},
                    {"ema_top1", "val top-1, averaged", true, 2, other},
                    {"val_top5", "val top-5", true, 3, one ? line : faint}},
                   100},
                  x, false);
  charts += chart(runs, {"Learning rate", "", {{"lr", "lr", false, 0, line}}, 1, 0.0}, x, false);
  charts += chart(
      runs, {"Gradient norm", "", {{"grad_norm", "gradient norm", false, 0, line, true}}}, x, true);
  charts += chart(
      runs,
      {"Training speed", "images/s", {{"images_per_second", "images/s", false, 0, line}}, 1, 0.0},
      x, false);
  charts += chart(runs,
                  {"Time of a step",
                   "ms",
                   {{"step_seconds", "whole step", false, 0, line},
                    {"data_seconds", "waiting for data", false, 1, other}},
                   1000,
                   0.0},
                  x, false);
  if (scales_loss(runs)) {
    const Plan plan{"Loss scale", "", {{"loss_scale", "loss scale", false, 0, line}}};
    charts += draw({.title = plan.title,
                    .x_name = x.name(),
                    .curves = curves_of(runs, plan, x),
                    .scale = AxisScale::log2});
    charts += chart(runs,
                    {"Skipped updates",
                     "since start or resume",
                     {{"skipped", "skipped", false, 0, line}},
                     1,
                     0.0},
                    x, false);
  }
  return section("Curves", charts.empty() ? "" : element("div", "class=\"charts\"", charts));
}

}  // namespace bv

#include "app/html_report/results.h"

#include <algorithm>
#include <cmath>

#include "base/text.h"

namespace bv {

Best best_of(const RunMetrics& m) {
  Best best{.averaged = m.epochs.has("ema_top1")};
  for (size_t row = 0; row < m.epochs.rows(); ++row) {
    const double top1 = m.epochs.at(best.averaged ? "ema_top1" : "val_top1", row);
    if (std::isnan(top1) || (best.row >= 0 && top1 <= best.top1)) continue;
    best.row = static_cast<int64_t>(row);
    best.top1 = top1;
  }
  return best;
}

double seconds_of(const RunMetrics& m) {
  double sum = 0;
  for (size_t row = 0; row < m.epochs.rows(); ++row)
    if (const double s = m.epochs.at("seconds", row); !std::isnan(s)) sum += s;
  return sum;
}

double last_step(const RunMetrics& m) {
  double last = 0;
  for (const MetricTable* table : {&m.steps, &m.epochs})
    if (table->has("step")) last = std::max(last, table->last("step"));
  return last;
}

bool ended_badly(const RunFacts& f) {
  return !f.ending.empty() && f.ending != finished && f.ending != stopped;
}

std::string state_of(const RunReport& run) {
  const auto steps = static_cast<int64_t>(last_step(run.metrics));
  const double epochs = run.metrics.epochs.last("epoch");
  std::string after = " after " + counted(steps, "step");
  if (!std::isnan(epochs))
    after += ", " + format_number(epochs) + (epochs == 1 ? " epoch" : " epochs");
  if (!run.facts) return "Logged" + after + ".";
  const RunFacts& f = *run.facts;
  std::string text = "Ended by an error: " + f.ending;
  if (f.ending.empty())
    text = "Under way: step " + std::to_string(steps) + " of " + std::to_string(f.steps_end);
  else if (!ended_badly(f))
    text = (f.ending == finished ? "Finished" : "Stopped") + after;
  return text + ". Written " + f.written + " by barevision " BAREVISION_VERSION ".";
}

}  // namespace bv

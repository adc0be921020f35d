#include "app/hooks/summary.h"

#include "engine/console/report.h"

namespace bv {

void Summary::after_train(Run& run) {
  if (run.rank != 0) return;
  const int64_t skipped = run.setup.bad_images.count();
  Console& console = *run.console;
  if (skipped > 0) console.line("bad images skipped: " + std::to_string(skipped), true);
  run.profile.enter("end");
  const Options& o = run.setup.options;
  if (o.profile)
    for (const std::string& line : profile_lines(run.profile.seconds())) console.line(line, true);
  const auto lines = end_lines(o, {.stopped = run.stopped_by != 0,
                                   .capped = run.end < run.horizon,
                                   .has_best = run.progress.best_top1 >= 0,
                                   .step = run.progress.step});
  // The first line has the path of the weights.
  for (const std::string& line : lines) console.line(line, &line == lines.data());
}

}  // namespace bv

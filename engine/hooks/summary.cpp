#include "engine/hooks/summary.h"

#include "engine/base/text.h"
#include "engine/report/report.h"

namespace bv {

void Summary::after_train(Run& run) {
  double skipped = static_cast<double>(run.train.skipped() + (run.val ? run.val->skipped() : 0));
  if (run.communicator) skipped = run.communicator->all_reduce_scalar(skipped);
  if (run.rank != 0) return;
  Console& console = *run.console;
  if (skipped > 0) console.line("bad images skipped: " + format_number(skipped), true);
  run.profile.enter("end");
  const Options& o = run.setup.options;
  if (o.profile)
    for (const std::string& line : profile_lines(run.profile.seconds())) console.line(line, true);
  const auto lines = end_lines(o, {.stopped = run.stopped_by != 0,
                                   .capped = run.end < run.horizon,
                                   .has_best = run.progress.best_top1 >= 0,
                                   .step = run.progress.step});
  // The first says where the weights are.
  for (const std::string& line : lines) console.line(line, &line == lines.data());
}

}  // namespace bv

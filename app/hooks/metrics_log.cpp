#include "app/hooks/metrics_log.h"

#include "comm/processes/restart.h"

namespace bv {

void MetricsLog::before_train(Run& run) {
  const std::string path = run.setup.options.out + "/metrics.jsonl";
  const std::optional<Restart> restart = restart_from_environment();
  const int64_t kept = run.setup.checkpoint || restart
                           ? end_of_step(path, run.progress.step, run.progress.settled)
                           : 0;
  file_.emplace(path, 0);
  file_->cut(kept);
  if (restart)
    write(run, to_json(RestartRecord{.step = run.progress.step,
                                     .number = restart->number,
                                     .most = restart->most,
                                     .rank = restart->after.rank,
                                     .ended_in = restart->after.step,
                                     .cause = restart->after.cause,
                                     .processes = run.setup.world,
                                     .processes_before = restart->processes}));
}

// An error doesn't end the run: its weights are worth more than its log.
void MetricsLog::write(Run& run, const std::string& json) {
  if (!file_) return;
  try {
    file_->append(json + "\n");
  } catch (const RunError& e) {
    file_.reset();
    run.warn(std::string(e.what()) + "; training continues, without further lines there");
    run.incomplete = true;
  }
}

}  // namespace bv

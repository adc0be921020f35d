#include "app/hooks/metrics_log.h"

#include <ctime>
#include <fstream>
#include <set>
#include <string>

namespace bv {
namespace {

std::set<std::string> restart_lines(const std::string& path) {
  std::ifstream file(path);
  std::set<std::string> lines;
  for (std::string line; std::getline(file, line);)
    if (line.find("\"restart\"") != line.npos) lines.insert(line);
  return lines;
}

}  // namespace

std::string MetricsLog::with_time(std::string json) {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  char text[64];
  std::strftime(text, sizeof text, ",\"time\":\"%Y-%m-%dT%H:%M:%SZ\"", gmtime_r(&now, &utc));
  return json.insert(json.size() - 1, text);
}

std::string MetricsLog::path_of(const Run& run) { return run.setup.options.out + "/metrics.jsonl"; }

void MetricsLog::before_train(Run& run) {
  const std::string path = path_of(run);
  const std::optional<Restart> restart = restart_from_environment();
  const int64_t kept = run.setup.checkpoint || restart
                           ? end_of_step(path, run.progress.step, run.progress.settled)
                           : 0;
  file_.emplace(path, 0);
  file_->cut(kept);
  if (restart) write(run, *restart);
}

// Writes this restart's line, preceded by the lines of earlier restarts whose processes ended
// before they could write them.
void MetricsLog::write(Run& run, const Restart& restart) {
  const std::set<std::string> logged =
      restart.unlogged.empty() ? std::set<std::string>() : restart_lines(path_of(run));
  std::vector<Restart> all = restart.unlogged;
  all.push_back(restart);
  for (size_t i = 0; i < all.size(); ++i) {
    const Restart& r = all[i];
    const bool own = i + 1 == all.size();
    const std::string line =
        to_json(RestartRecord{.step = run.progress.step,
                              .number = r.number,
                              .most = r.most,
                              .rank = r.after.rank,
                              .ended_in = r.after.step,
                              .cause = r.after.cause,
                              .processes = own ? run.setup.world : all[i + 1].processes,
                              .processes_before = r.processes});
    if (own || !logged.contains(line)) write(run, line);
  }
}

// A write error doesn't end the run: the weights are worth more than the log.
void MetricsLog::write(Run& run, const std::string& json) {
  if (!file_) return;
  try {
    file_->append(json + "\n");
  } catch (const RunError& e) {
    file_.reset();
    run.warn(std::string(e.what()) + "; training continues, without further log lines");
    run.incomplete = true;
  }
}

}  // namespace bv

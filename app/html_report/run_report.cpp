#include "app/html_report/run_report.h"

#include <filesystem>

#include "app/html_report/report_facts.h"
#include "base/error.h"
#include "base/files/file_io.h"
#include "base/machine_error.h"
#include "base/text.h"

namespace bv {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t max_bytes = 256 << 20;  // of report.json

}  // namespace

std::string RunReport::name() const {
  fs::path path = fs::path(folder).lexically_normal();
  if (path.filename().empty()) path = path.parent_path();
  return path.filename();
}

bool RunReport::failed() const {
  if (facts.is_null()) return false;
  const Json& ending = facts["ending"];
  return ending != "" && ending != finished && ending != stopped;
}

std::string RunReport::state() const {
  const Json& epochs = metrics.epochs();
  std::string after = " after " + counted(metrics.last_step(), "step");
  if (!epochs.empty()) {
    const int64_t last = epochs.back().value("epoch", 0);
    after += ", " + std::to_string(last) + (last == 1 ? " epoch" : " epochs");
  }
  if (facts.is_null()) return "Logged" + after + ".";
  const std::string ending = facts["ending"], written = facts["written"];
  std::string text = "Ended by an error: " + ending;
  if (ending.empty())
    text = "Under way: step " + std::to_string(metrics.last_step()) + " of " +
           facts["steps_end"].dump();
  else if (!failed())
    text = (ending == finished ? "Finished" : "Stopped") + after;
  return text + ". Written " + written + " by barevision " BAREVISION_VERSION ".";
}

std::string facts_path(const std::string& folder) { return fs::path(folder) / "report.json"; }
std::string page_path(const std::string& folder) { return fs::path(folder) / "report.html"; }

Json read_run_config(const std::string& folder) {
  const std::string path = fs::path(folder) / "config.json";
  return parse_json_object(read_text_file(path), path);
}

Json read_facts(const std::string& folder) {
  const std::string path = facts_path(folder);
  return there_is(path) ? parse_facts(read_text_file(path, max_bytes), path) : Json();
}

RunReport load_run(const std::string& folder) {
  std::error_code error;
  if (!there_is(folder)) {
    const std::string link = link_without_target(folder);
    throw UserError(folder + ": " + (link.empty() ? "no such folder" : link));
  }
  if (!fs::is_directory(folder, error)) throw UserError(folder + ": a file, not a run's folder");
  const std::string metrics = fs::path(folder) / "metrics.jsonl";
  const std::string config = fs::path(folder) / "config.json";
  if (!there_is(config))
    throw UserError(folder + ": not a run's folder, it has no config.json" + run_above(folder));
  if (!there_is(metrics))
    throw UserError(metrics + ": no such file, and without it there is nothing to report");
  RunReport run{
      .folder = folder, .config = read_run_config(folder), .metrics = RunMetrics(metrics)};
  run.metrics.read();
  if (run.metrics.last_step() == 0)
    throw UserError(metrics + " is empty: the run has logged no step yet");
  run.facts = read_facts(folder);
  return run;
}

}  // namespace bv

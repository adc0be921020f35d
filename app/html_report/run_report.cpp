#include "app/html_report/run_report.h"

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/file_io.h"
#include "base/json.h"
#include "base/text.h"

namespace bv {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t max_bytes = 256 << 20;  // of report.json

bool there_is(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

std::string text_of(const JsonValue& value) {
  if (value.kind != JsonValue::Kind::list) return value.text;
  std::vector<std::string> items;
  for (const JsonValue& item : value.items) items.push_back(item.text);
  return join(items, ",");
}

}  // namespace

std::string RunReport::option(std::string_view name) const {
  const auto found = std::ranges::find(config, name, [](const auto& pair) { return pair.first; });
  return found == config.end() ? "" : found->second;
}

std::string RunReport::name() const {
  fs::path path = fs::path(folder).lexically_normal();
  if (path.filename().empty()) path = path.parent_path();
  return path.filename();
}

std::string facts_path(const std::string& folder) { return fs::path(folder) / "report.json"; }
std::string page_path(const std::string& folder) { return fs::path(folder) / "report.html"; }

std::vector<std::pair<std::string, std::string>> read_run_config(const std::string& folder) {
  const std::string path = fs::path(folder) / "config.json";
  std::vector<std::pair<std::string, std::string>> config;
  for (const auto& [name, value] : parse_json_object(read_text_file(path), path).members)
    config.emplace_back(name, text_of(value));
  return config;
}

std::optional<RunFacts> read_facts(const std::string& folder) {
  const std::string path = facts_path(folder);
  if (!there_is(path)) return {};
  return facts_from_json(read_text_file(path, max_bytes), path);
}

RunReport load_run(const std::string& folder) {
  std::error_code error;
  if (!fs::is_directory(folder, error)) throw UserError(folder + ": there is no such folder");
  const std::string metrics = fs::path(folder) / "metrics.jsonl";
  const std::string config = fs::path(folder) / "config.json";
  for (const std::string& file : {config, metrics})
    if (!there_is(file))
      throw UserError(folder + ": not a run's folder, it has no " +
                      fs::path(file).filename().string());
  RunReport run{
      .folder = folder, .config = read_run_config(folder), .metrics = RunMetrics(metrics)};
  run.metrics.read();
  if (run.metrics.steps.rows() + run.metrics.epochs.rows() == 0)
    throw UserError(metrics + " is empty: the run has done no step that it logged");
  run.facts = read_facts(folder);
  return run;
}

}  // namespace bv

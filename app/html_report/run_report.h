// A run as its page shows it, read from its folder.
#pragma once
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "app/html_report/facts.h"
#include "app/html_report/metrics.h"

namespace bv {

struct RunReport {
  std::string folder;                                            // as it was named
  std::vector<std::pair<std::string, std::string>> config = {};  // config.json: options as text
  RunMetrics metrics;
  std::optional<RunFacts> facts = {};  // of a run that wrote report.json

  std::string option(std::string_view name) const;  // empty: there is none
  std::string name() const;                         // the folder's
};

// Throws UserError where that is no run's folder, or one without metrics.
RunReport load_run(const std::string& folder);
// Its parts. Facts: nothing where the run left none.
std::vector<std::pair<std::string, std::string>> read_run_config(const std::string& folder);
std::optional<RunFacts> read_facts(const std::string& folder);

std::string facts_path(const std::string& folder);  // RUN/report.json
std::string page_path(const std::string& folder);   // RUN/report.html

}  // namespace bv

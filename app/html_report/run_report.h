// A run as its page shows it, read from its folder.
#pragma once
#include <string>

#include "app/html_report/metrics.h"

namespace bv {

struct RunReport {
  std::string folder;  // as it was named
  Json config;         // config.json
  RunMetrics metrics;
  Json facts = {};  // report.json, as report_facts.h describes it; null if the run left none
};

// Throws UserError where that is no run's folder, or one without metrics.
RunReport load_run(const std::string& folder);
// Its parts. Facts: null where the run left none.
Json read_run_config(const std::string& folder);
Json read_facts(const std::string& folder);

std::string facts_path(const std::string& folder);  // RUN/report.json
std::string page_path(const std::string& folder);   // RUN/report.html

}  // namespace bv

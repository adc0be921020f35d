// A run's data for its page, read from its folder.
#pragma once
#include <string>

#include "app/html_report/metrics.h"

namespace bv {

struct RunReport {
  std::string folder;  // as given by the user
  Json config;         // config.json
  RunMetrics metrics;
  Json facts = {};  // report.json, as report_facts.h describes it; null if the run left none

  std::string name() const;  // the folder's
  // "Finished after 64 steps, 2 epochs. Written 2026-11-21 12:00 UTC by barevision 0.1.0."
  std::string state() const;
  bool failed() const;  // ended by an error
};

// Throws UserError if the folder is not a run's or has no metrics.
RunReport load_run(const std::string& folder);
// config.json and report.json; the latter is null if the run wrote none.
Json read_run_config(const std::string& folder);
Json read_facts(const std::string& folder);

std::string facts_path(const std::string& folder);  // RUN/report.json
std::string page_path(const std::string& folder);   // RUN/report.html

}  // namespace bv

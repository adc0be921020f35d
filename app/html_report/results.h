// What a run came to, in figures and words.
#pragma once
#include <string>

#include "app/html_report/run_report.h"

namespace bv {

// The evaluation with the highest accuracy, that of the weights' average where there is one.
struct Best {
  int64_t row = -1;  // of metrics.epochs; -1: there is none
  double top1 = 0;
  bool averaged = false;
};
Best best_of(const RunMetrics&);

double seconds_of(const RunMetrics&);  // of all epochs
double last_step(const RunMetrics&);

// RunFacts::ending, besides an error's line.
constexpr const char *finished = "finished", *stopped = "stopped";
bool ended_badly(const RunFacts&);
// "Finished after 64 steps, 2 epochs. Written 2026-11-21 12:00 UTC, barevision 0.1.0."
std::string state_of(const RunReport&);

}  // namespace bv

// A run's first and last lines, and its profile.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "engine/setup/setup.h"

namespace bv {

struct RunHead {
  std::string device;
  size_t peak_bytes;        // per process
  size_t gradient_buckets;  // 0: one process
  int64_t steps_done, steps_end;
};
std::vector<std::string> head_lines(const Setup&, const RunHead&);

// Head of the --plan report. limit: bytes of memory available to each process.
std::string plan_head(const Setup&, const std::string& device, size_t limit);

// A line that explains a validation loss far above that of random guessing; else empty. updates:
// done so far.
std::string val_loss_note(const Setup&, double val_loss, int64_t updates);

struct RunEnd {
  bool stopped;  // by a signal
  bool capped;   // by --steps, before the schedule's end
  bool has_best;
  int64_t step;
};
// Paths of the weights, and the command to resume.
std::vector<std::string> end_lines(const Options&, const RunEnd&);

// Seconds of each section, longest first, and their sum.
std::vector<std::string> profile_lines(const std::map<std::string, double>& seconds);

}  // namespace bv

// What rank 0 tells people on standard output: lines, and on a terminal a progress bar.
#pragma once
#include <unistd.h>

#include <cstdint>
#include <string_view>

#include "engine/report/log.h"
#include "engine/report/output.h"
#include "engine/report/progress.h"

namespace bv {

class Console {
 public:
  // total_steps: of the whole run, for the time left.
  explicit Console(int64_t total_steps) : total_steps_(total_steps) {}
  ~Console() { bar_.clear(); }
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;

  void line(std::string_view text);
  void step(const StepRecord&);
  void epoch(const EpochRecord&);
  void progress(const StepRecord& r) { bar_.update(r, total_steps_); }

 private:
  int64_t total_steps_;
  Output out_{STDOUT_FILENO};
  ProgressBar bar_{out_};
};

// Whether standard output is a terminal that someone looks at.
bool on_terminal();

}  // namespace bv

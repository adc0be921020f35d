// Rank 0's standard output: lines, and a progress bar on a terminal.
#pragma once
#include <unistd.h>

#include <cstdint>
#include <string_view>

#include "engine/console/log.h"
#include "engine/console/output.h"
#include "engine/console/progress.h"

namespace bv {

class Console {
 public:
  // total_steps: of the whole run, for the time left. quiet: prints only what is important.
  explicit Console(int64_t total_steps, bool quiet = false)
      : total_steps_(total_steps), quiet_(quiet) {}
  ~Console() { bar_.clear(); }
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;

  // important: a warning or the last line, for quiet users too.
  void line(std::string_view text, bool important = false);
  void clear() { bar_.clear(); }  // before anyone else writes to the terminal
  void step(const StepRecord&);
  void epoch(const EpochRecord&);
  void progress(const StepRecord& r) {
    if (!quiet_) bar_.update(r, total_steps_);
  }

 private:
  int64_t total_steps_;
  bool quiet_;
  Output out_{STDOUT_FILENO};
  ProgressBar bar_{out_};
};

// Whether standard output is a terminal that someone looks at and that can redraw a line.
bool on_terminal();

}  // namespace bv

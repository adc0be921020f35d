// Rank 0's standard output: lines, and a progress bar on a terminal.
#pragma once
#include <unistd.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "engine/console/log.h"
#include "engine/console/output.h"
#include "engine/console/progress.h"

namespace bv {

class Console {
 public:
  // total_steps, epochs: of the whole run, for the time left and the width of epoch numbers.
  // quiet: prints only important lines.
  explicit Console(int64_t total_steps, int64_t epochs, bool quiet = false)
      : total_steps_(total_steps), epochs_(epochs), quiet_(quiet) {}
  ~Console() { bar_.clear(); }
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;

  // important: a warning or the last line, for quiet users too.
  void line(std::string_view text, bool important = false);
  // The same; on a terminal, wrapped between words.
  void paragraph(const std::string& text, bool important = false);
  void clear() { bar_.clear(); }  // call it before other code writes to the terminal
  void step(const StepRecord&);
  void epoch(const EpochRecord&);
  void progress(const StepRecord& r) {
    if (!quiet_) bar_.update(r, total_steps_);
  }

 private:
  int64_t total_steps_, epochs_;
  bool quiet_;
  Output out_{STDOUT_FILENO};
  ProgressBar bar_{out_};
};

// "epoch  4  train 1.504  val 1.865  top-1  10.0%  122/s  0:10", in 79 columns: losses, validation
// accuracy, images per second, time. The figures of successive epochs line up.
std::string epoch_line(const EpochRecord&, int64_t epochs);

// "  eval 2.1 s  saving 0.3 s  host 530 MiB  device 380 MiB  planned 374 MiB": an epoch's times
// besides training, peak memory, and planned memory (of the device; on the cpu, of the host).
std::string measured_line(const EpochRecord&);

// Whether standard output is an interactive terminal that can redraw a line.
bool on_terminal();

}  // namespace bv

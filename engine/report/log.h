// What rank 0 reports: metrics.jsonl for programs, lines or a progress bar for people.
#pragma once
#include <unistd.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "engine/report/progress.h"

namespace bv {

// A line after each epoch, and when a run ends within one. Fractions are 0-1.
struct EpochRecord {
  int64_t epoch = 0, step = 0;
  double train_loss = 0;
  std::optional<double> train_top1;          // empty: not known; null in the file
  std::optional<double> val_loss, val_top1;  // empty: not evaluated; null in the file
  std::optional<double> val_top5;            // empty: 5 classes or fewer; not in the file
  std::optional<double> ema_loss, ema_top1;  // of the weights' average; empty: not in the file
  double lr = 0;
  std::optional<double> images_per_second;  // empty: all trained before the run was resumed
  double seconds = 0;
  int64_t peak_memory_bytes = 0;
};

std::string to_json(const StepRecord&);
std::string to_json(const EpochRecord&);

class RunLog {
 public:
  struct Settings {
    std::string path;           // metrics.jsonl; empty: no file
    int64_t resumed_step = -1;  // >= 0: resumed after this step; later lines are dropped
    int64_t total_steps = 0;    // of the whole run, for the time left
    bool terminal = false;      // standard output is a terminal: a bar instead of lines
  };
  explicit RunLog(const Settings&);
  ~RunLog();
  RunLog(const RunLog&) = delete;
  RunLog& operator=(const RunLog&) = delete;

  // Write a line of metrics.jsonl at once and inform the user; a step that isn't due moves the bar.
  void step(const StepRecord&, bool due = true);
  void epoch(const EpochRecord&);
  void line(std::string_view text);

 private:
  Settings settings_;
  int file_ = -1;
  Output out_{STDOUT_FILENO};
  ProgressBar bar_{out_};

  void append(const std::string& json);
};

}  // namespace bv

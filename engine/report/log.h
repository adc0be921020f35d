// What rank 0 tells: metrics.jsonl for programs, lines or a progress bar for people.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "engine/report/progress.h"

namespace bv {

// A line at --log-every. Rate and times are over the steps since the line before it, waiting for
// data included, evaluation and saving not.
struct StepRecord {
  int64_t epoch = 0, step = 0;
  double loss = 0, lr = 0, grad_norm = 0;
  double images_per_second = 0;               // of all processes
  double data_seconds = 0, step_seconds = 0;  // of one step: waiting for its batch, in all
  double loss_scale = 1;
  int64_t skipped = 0;  // updates since the process began, for gradients that were not finite
};

// A line after each epoch, and where a run ends inside one. Fractions are 0-1.
struct EpochRecord {
  int64_t epoch = 0, step = 0;
  double train_loss = 0;
  std::optional<double> val_loss, val_top1;  // none: not evaluated; null in the file
  std::optional<double> val_top5;            // none: 5 classes or fewer; not in the file
  double lr = 0, images_per_second = 0, seconds = 0;
  int64_t peak_memory_bytes = 0;
};

std::string to_json(const StepRecord&);
std::string to_json(const EpochRecord&);

class RunLog {
 public:
  struct Settings {
    std::string path;           // metrics.jsonl; empty: none
    int64_t resumed_step = -1;  // >= 0: goes on after this step; later lines are to come anew
    int64_t total_steps = 0;    // of the whole run, for the time left
    bool terminal = false;      // standard output is one: a bar instead of a line for each record
  };
  // Throws RunError where the file can't be opened.
  explicit RunLog(const Settings&);
  ~RunLog();
  RunLog(const RunLog&) = delete;
  RunLog& operator=(const RunLog&) = delete;

  // After every step; costs nothing but now and then a redrawn bar.
  void progress(const Progress&);
  // These write a line of metrics.jsonl, whole and at once, and tell the user. Throw RunError where
  // the disk is full.
  void step(const StepRecord&);
  void epoch(const EpochRecord&);
  // Text for the user, on a line of its own.
  void line(std::string_view text);

 private:
  Settings settings_;
  int file_ = -1;
  ProgressBar bar_;

  void append(const std::string& json);
};

}  // namespace bv

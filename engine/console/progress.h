// A step's figures, and the progress bar that shows them in a terminal.
#pragma once
#include <chrono>
#include <cstdint>
#include <string>

#include "engine/console/output.h"

namespace bv {

// A line every --log-every steps. Rate and times cover the steps since the previous line, including
// waiting for data, excluding evaluation and saving.
struct StepRecord {
  int64_t epoch = 0, epochs = 0, step = 0;                // from 1; epochs: the run's, for the bar
  double loss = 0, mean_loss = 0, lr = 0, grad_norm = 0;  // mean: of the epoch so far, for the bar
  double top1 = 0;  // on augmented training images; a mixed image counts by its own label
  double images_per_second = 0;               // over all processes
  double data_seconds = 0, step_seconds = 0;  // per step: waiting for the batch, total
  double bubble_seconds = 0;                  // part of step_seconds: waiting for other stages
  double loss_scale = 1;
  int64_t skipped = 0;  // updates of this process whose gradients were not finite
  // Not written to the file:
  double images = 0;  // in this update
  bool due = false;   // whether a line is due
};

int terminal_width();  // of standard output; 80 if unknown

// One line of at most `width` columns: position, bar, figures, time left (negative: unknown). If it
// doesn't fit, parts are dropped: the learning rate, the images per second, the bar, then the rest.
std::string progress_line(const StepRecord&, int64_t total_steps, double seconds_left, int width);
std::string clock_text(double seconds);  // 0:42, 1:02:03

// Redraws at most ten times a second.
class ProgressBar {
 public:
  explicit ProgressBar(Output& out) : out_(out) {}
  void update(const StepRecord&, int64_t total_steps);
  void clear();  // call it before any other output

 private:
  using Clock = std::chrono::steady_clock;
  std::string to_beginning(int width) const;

  Output& out_;
  bool drawn_ = false;
  size_t columns_ = 0;       // width of the drawn line
  int64_t first_step_ = -1;  // with its time, the base of the estimate
  Clock::time_point first_time_, last_drawn_;
};

}  // namespace bv

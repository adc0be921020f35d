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
  int64_t epoch = 0, epochs = 0, step = 0;  // counted from 1; epochs: of the run, for the bar
  double loss = 0, mean_loss = 0, lr = 0, grad_norm = 0;  // mean: of the epoch so far, for the bar
  double top1 = 0;  // of the training images as the model saw them, by their own labels
  double images_per_second = 0;               // of all processes
  double data_seconds = 0, step_seconds = 0;  // per step: waiting for the batch, total
  double bubble_seconds = 0;                  // of it, waiting for other stages
  double loss_scale = 1;
  int64_t skipped = 0;  // updates in this process's lifetime whose gradients were not finite
  // In no line:
  double images = 0;  // of this update
  bool due = false;   // a line is
};

int terminal_width();  // of standard output; 80 if it can't be asked

// One line of at most `width` columns: position, bar, figures, time left (negative: unknown). What
// doesn't fit is left out: the learning rate, the images per second, the bar, then the rest.
std::string progress_line(const StepRecord&, int64_t total_steps, double seconds_left, int width);
std::string clock_text(double seconds);  // 0:42, 1:02:03

// Draws at most ten times a second.
class ProgressBar {
 public:
  explicit ProgressBar(Output& out) : out_(out) {}
  void update(const StepRecord&, int64_t total_steps);
  void clear();  // before any other output

 private:
  using Clock = std::chrono::steady_clock;
  std::string to_beginning(int width) const;

  Output& out_;
  bool drawn_ = false;
  size_t columns_ = 0;       // of the line that is drawn
  int64_t first_step_ = -1;  // and its time: the base of the estimate
  Clock::time_point first_time_, last_drawn_;
};

}  // namespace bv

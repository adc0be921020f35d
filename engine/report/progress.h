// The progress bar in a terminal.
#pragma once
#include <chrono>
#include <cstdint>
#include <string>

namespace bv {

struct Progress {
  int64_t epoch = 0, epochs = 0;  // counted from 1
  int64_t step = 0;               // updates done
  double loss = 0, lr = 0, images_per_second = 0;
};

// One line of at most `width` columns: position, bar, figures, time left (negative: unknown). What
// doesn't fit is left out, the bar first.
std::string progress_line(const Progress&, int64_t total_steps, double seconds_left, int width);
// 0:42, 1:02:03.
std::string clock_text(double seconds);

// Draws on standard output, at most ten times a second.
class ProgressBar {
 public:
  void update(const Progress&, int64_t total_steps);
  void clear();  // before any other output

 private:
  using Clock = std::chrono::steady_clock;
  bool drawn_ = false;
  int64_t first_step_ = -1;  // and its time: the base of the estimate
  Clock::time_point first_time_, last_drawn_;
};

}  // namespace bv

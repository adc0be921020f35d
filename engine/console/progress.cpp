#include "engine/console/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/text.h"

namespace bv {

namespace {

int terminal_width() {
  winsize size{};
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

}  // namespace

std::string clock_text(double seconds) {
  const auto total = static_cast<long long>(std::clamp(seconds, 0.0, 1e9));
  char text[48];
  if (total >= 3600)
    std::snprintf(text, sizeof text, "%lld:%02lld:%02lld", total / 3600, total / 60 % 60,
                  total % 60);
  else
    std::snprintf(text, sizeof text, "%lld:%02lld", total / 60, total % 60);
  return text;
}

std::string progress_line(const StepRecord& now, int64_t total_steps, double seconds_left,
                          int width) {
  const auto columns = static_cast<size_t>(std::max(width, 1));
  std::string line = "epoch " + std::to_string(now.epoch) + "/" + std::to_string(now.epochs) +
                     "  step " + std::to_string(now.step) + "/" + std::to_string(total_steps);
  std::string figures = "  loss " + format_number(now.mean_loss, 4) + "  lr " +
                        format_number(now.lr, 3) + "  " +
                        format_number(std::round(now.images_per_second)) + " images/s";
  if (seconds_left >= 0) figures += "  " + clock_text(seconds_left) + " left";

  const size_t used = line.size() + figures.size();
  if (columns > used + 10) {
    const size_t length = std::min<size_t>(30, columns - used - 4);
    const double done = total_steps > 0 ? double(now.step) / double(total_steps) : 0;
    const auto full = static_cast<size_t>(std::clamp(done, 0.0, 1.0) * double(length));
    line += "  [" + std::string(full, '=') + std::string(length - full, ' ') + "]";
  }
  return (line + figures).substr(0, columns);
}

void ProgressBar::update(const StepRecord& now, int64_t total_steps) {
  const Clock::time_point time = Clock::now();
  if (first_step_ < 0) {
    first_step_ = now.step;
    first_time_ = time;
  }
  const bool last = now.step >= total_steps;
  if (drawn_ && !last && time - last_drawn_ < std::chrono::milliseconds(100)) return;
  double left = -1;
  if (now.step > first_step_) {
    const double passed = std::chrono::duration<double>(time - first_time_).count();
    left = passed / double(now.step - first_step_) *
           double(std::max<int64_t>(total_steps - now.step, 0));
  }
  // One column stays free: some terminals wrap a full line.
  const std::string line = progress_line(now, total_steps, left, terminal_width() - 1);
  out_.print("\r" + line + "\x1b[K");
  drawn_ = true;
  last_drawn_ = time;
}

void ProgressBar::clear() {
  if (!drawn_) return;
  out_.print("\r\x1b[K");
  drawn_ = false;
}

}  // namespace bv

#include "engine/console/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/text.h"

namespace bv {

int terminal_width() {
  winsize size{};
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

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
  constexpr size_t shortest = 10, longest = 30, frame = 4;  // of the bar; two spaces and brackets
  constexpr size_t usual = std::string_view("00:00 left").size();
  std::string line = "epoch " + std::to_string(now.epoch) + "/" + std::to_string(now.epochs) +
                     "  step " + std::to_string(now.step) + "/" + std::to_string(total_steps);
  const std::string loss = "  loss " + format_number(now.mean_loss, 4);
  // The time left gets its usual width even if unknown or shorter, so that the bar doesn't jump.
  std::string left = seconds_left >= 0 ? clock_text(seconds_left) + " left" : "";
  left.insert(0, 2 + usual - std::min(usual, left.size()), ' ');
  std::string lr = "  lr " + format_number(now.lr, 3),
              rate = "  " + format_number(std::round(now.images_per_second)) + "/s";
  const auto used = [&] {
    return line.size() + loss.size() + lr.size() + rate.size() + left.size();
  };
  for (std::string* figure : {&lr, &rate})
    if (used() + frame + shortest > columns) figure->clear();
  if (used() + frame + shortest <= columns) {
    const size_t length = std::min(longest, columns - used() - frame);
    const double done = total_steps > 0 ? double(now.step) / double(total_steps) : 0;
    const auto full = static_cast<size_t>(std::clamp(done, 0.0, 1.0) * double(length));
    line += "  [" + std::string(full, '=') + std::string(length - full, ' ') + "]";
  }
  return (line + loss + lr + rate + left).substr(0, columns);
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
  const int width = terminal_width();
  const std::string line = progress_line(now, total_steps, left, width - 1);
  out_.print(to_beginning(width) + line + "\x1b[K");
  drawn_ = true;
  columns_ = line.size();
  last_drawn_ = time;
}

void ProgressBar::clear() {
  if (!drawn_) return;
  out_.print(to_beginning(terminal_width()) + "\x1b[K");
  drawn_ = false;
}

// If the window became narrower, the drawn line has wrapped and its first row is further up.
std::string ProgressBar::to_beginning(int width) const {
  const size_t rows = drawn_ && columns_ > 0 ? (columns_ - 1) / size_t(std::max(width, 1)) : 0;
  return rows == 0 ? "\r" : "\r\x1b[" + std::to_string(rows) + "A\x1b[J";
}

}  // namespace bv

// Progress of a command, on standard error: in a terminal a line that is drawn again and again, else
// a line every ten seconds.
#pragma once
#include <chrono>
#include <string>

namespace bv {

class ProgressLine {
 public:
  ProgressLine();
  ~ProgressLine();  // the line goes
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;
  void show(const std::string& text);  // may be called as often as one likes

 private:
  using Clock = std::chrono::steady_clock;
  bool terminal_, drawn_ = false;
  Clock::time_point next_;
};

}  // namespace bv

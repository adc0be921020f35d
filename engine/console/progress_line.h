// Progress of a command on standard error: one redrawn line in a terminal, elsewhere a line every
// ten seconds.
#pragma once
#include <chrono>
#include <cstdint>
#include <string>

namespace bv {

inline constexpr const char* clear_line = "\r\x1b[K";

std::string counted_of(int64_t done, int64_t total, const std::string& nouns);  // "3 of 40 images"

class ProgressLine {
 public:
  ProgressLine();
  ~ProgressLine();  // clears the line
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;
  void show(const std::string& text);  // cheap: rarely prints

 private:
  using Clock = std::chrono::steady_clock;
  bool terminal_, drawn_ = false;
  Clock::time_point next_;
};

}  // namespace bv

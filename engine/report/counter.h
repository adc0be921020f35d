// "120 of 400 images" on a terminal's last line while work goes on; nothing where there is none.
#pragma once
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>

namespace bv {

inline constexpr const char* clear_line = "\r\x1b[K";

class Counter {
 public:
  explicit Counter(int64_t images) : images_(images) {}
  ~Counter() {
    if (shown_) std::fputs(clear_line, stderr);
  }
  Counter(const Counter&) = delete;
  Counter& operator=(const Counter&) = delete;
  // At most ten times a second.
  void show(int64_t done) {
    const auto now = Clock::now();
    if (!isatty(STDERR_FILENO) || now - last_ < std::chrono::milliseconds(100)) return;
    last_ = now;
    shown_ = true;
    std::fprintf(stderr, "%s%lld of %lld images", clear_line, static_cast<long long>(done),
                 static_cast<long long>(images_));
  }

 private:
  using Clock = std::chrono::steady_clock;
  int64_t images_;
  bool shown_ = false;
  Clock::time_point last_{};
};

}  // namespace bv

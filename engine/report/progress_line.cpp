#include "engine/report/progress_line.h"

#include <unistd.h>

#include <cstdio>

namespace bv {

ProgressLine::ProgressLine()
    : terminal_(isatty(STDERR_FILENO)),
      next_(Clock::now() + std::chrono::seconds(terminal_ ? 0 : 10)) {}

ProgressLine::~ProgressLine() {
  if (terminal_ && drawn_) std::fputs("\r\x1b[K", stderr);
}

void ProgressLine::show(const std::string& text) {
  const auto now = Clock::now();
  if (now < next_) return;
  next_ = now + std::chrono::milliseconds(terminal_ ? 100 : 10000);
  std::fprintf(stderr, terminal_ ? "\r%s\x1b[K" : "%s\n", text.c_str());
  drawn_ = true;
}

}  // namespace bv

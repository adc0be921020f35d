#include "engine/console/progress_line.h"

#include <unistd.h>

#include <cstdio>

namespace bv {

std::string counted_of(int64_t done, int64_t total, const std::string& nouns) {
  return std::to_string(done) + " of " + std::to_string(total) + " " + nouns;
}

ProgressLine::ProgressLine()
    : terminal_(isatty(STDERR_FILENO)),
      next_(Clock::now() + std::chrono::seconds(terminal_ ? 0 : 10)) {}

ProgressLine::~ProgressLine() {
  if (terminal_ && drawn_) std::fputs(clear_line, stderr);
}

void ProgressLine::show(const std::string& text) {
  const auto now = Clock::now();
  if (now < next_) return;
  next_ = now + std::chrono::milliseconds(terminal_ ? 100 : 10000);
  std::fprintf(stderr, terminal_ ? "\r%s\x1b[K" : "%s\n", text.c_str());
  drawn_ = true;
}

}  // namespace bv

// The signals of a launcher: stop signals and SIGCHLD are blocked and fetched one by one.
#pragma once
#include <chrono>
#include <csignal>

namespace bv {

class HeldSignals {
 public:
  HeldSignals();
  HeldSignals(const HeldSignals&) = delete;
  ~HeldSignals();
  // The next signal; si_signo is 0 if none arrives before `end`.
  siginfo_t next(std::chrono::steady_clock::time_point end) const;

 private:
  sigset_t set_, before_;
  struct sigaction child_before_ {};
};

}  // namespace bv

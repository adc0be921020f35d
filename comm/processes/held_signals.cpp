#include "comm/processes/held_signals.h"

#include "base/stop_signals.h"

namespace bv {

HeldSignals::HeldSignals() {
  sigemptyset(&set_);
  sigaddset(&set_, SIGCHLD);
  for (const int number : stop_signals()) sigaddset(&set_, number);
  hold_stop_signals();
  sigprocmask(SIG_BLOCK, &set_, &before_);
  // No SIGCHLD for stopped children. If SIG_IGN were inherited, exits would not be signalled.
  struct sigaction action {};
  action.sa_handler = SIG_DFL;
  action.sa_flags = SA_NOCLDSTOP;
  sigaction(SIGCHLD, &action, &child_before_);
}

HeldSignals::~HeldSignals() {
  sigaction(SIGCHLD, &child_before_, nullptr);
  sigprocmask(SIG_SETMASK, &before_, nullptr);
}

siginfo_t HeldSignals::next(std::chrono::steady_clock::time_point end) const {
  using std::chrono::nanoseconds;
  siginfo_t info{};
  while (true) {
    const auto left =
        std::chrono::duration_cast<nanoseconds>(end - std::chrono::steady_clock::now());
    if (left.count() <= 0) return {};
    const timespec limit{static_cast<time_t>(left.count() / 1000000000),
                         static_cast<long>(left.count() % 1000000000)};
    if (sigtimedwait(&set_, &info, &limit) > 0) return info;
  }
}

}  // namespace bv

#include "engine/processes/signals.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>

#include "engine/base/error.h"

namespace bv {
namespace {

// The terminal signals the whole group, and the launcher passes the signal on: a repeat within this
// time is the same request.
constexpr int64_t same_request_ms = 1000;

// Global because a signal handler can reach nothing else.
std::atomic<int> stop_number{0};
std::atomic<int64_t> stop_time_ms{0};
static_assert(std::atomic<int64_t>::is_always_lock_free);

int64_t now_ms() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1000000;
}

void on_stop(int number) {
  int no_signal = 0;
  if (stop_number.compare_exchange_strong(no_signal, number)) {
    stop_time_ms = now_ms();
    return;
  }
  // 0: another thread is recording the first signal right now.
  if (stop_time_ms != 0 && now_ms() - stop_time_ms > same_request_ms) _exit(128 + number);
}

}  // namespace

std::span<const int> stop_signals() {
  static constexpr int numbers[] = {SIGINT, SIGTERM, SIGHUP};
  static const bool hangs_up = [] {
    struct sigaction before {};
    return sigaction(SIGHUP, nullptr, &before) != 0 || before.sa_handler != SIG_IGN;
  }();
  return {numbers, hangs_up ? 3u : 2u};
}

int stop_signal() { return stop_number; }

void catch_stop_signals() {
  struct sigaction action {};
  action.sa_handler = on_stop;
  action.sa_flags = SA_RESTART;
  sigset_t caught;
  sigemptyset(&caught);
  for (const int number : stop_signals()) {
    sigaddset(&caught, number);
    if (sigaction(number, &action, nullptr) != 0)
      throw RunError(std::string("can't catch signals: ") + std::strerror(errno));
  }
  sigprocmask(SIG_UNBLOCK, &caught, nullptr);
}

}  // namespace bv

#include "base/stop_signals.h"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>
#include <utility>

namespace bv {
namespace {

using Clock = std::chrono::steady_clock;

// A terminal signals the whole process group, and the launcher forwards the signal as well, so a
// second signal within this time is the same request.
constexpr std::chrono::seconds same_request{1};

std::atomic<bool> holding{false};  // hold_stop_signals() has been called

struct Held {
  sigset_t set, before;
};

const Held& held() {
  static const Held mask = [] {
    Held made;
    sigemptyset(&made.set);
    for (const int number : stop_signals()) sigaddset(&made.set, number);
    pthread_sigmask(SIG_BLOCK, &made.set, &made.before);
    holding = true;
    return made;
  }();
  return mask;
}

// Ends the process as if the signal had never been blocked, so that a shell sees that signal.
[[noreturn]] void end_by(int number) {
  std::signal(number, SIG_DFL);
  sigset_t one;
  sigemptyset(&one);
  sigaddset(&one, number);
  pthread_sigmask(SIG_UNBLOCK, &one, nullptr);
  raise(number);
  _exit(128 + number);
}

// Receives the signals. Never destroyed, since its thread outlives main().
class Receiver {
 public:
  static Receiver& instance() {
    static Receiver* const one = new Receiver;
    return *one;
  }

  int first() const { return first_; }

  void start(bool ends, std::function<void()> clean_up) {
    if (!holding) return;
    const std::lock_guard lock(mutex_);
    ends_ = ends;
    clean_up_ = std::move(clean_up);
    // fork() doesn't copy the thread.
    if (std::exchange(process_, getpid()) == getpid()) return;
    std::thread([this, set = held().set] {
      for (int number = 0;;)
        if (sigwait(&set, &number) == 0) receive(number);
    }).detach();
  }

 private:
  void receive(int number) {
    const std::lock_guard lock(mutex_);
    if (ends_) {
      if (clean_up_) clean_up_();
      end_by(number);
    }
    const Clock::time_point now = Clock::now();
    if (first_ != 0 && now - first_at_ > same_request) _exit(128 + number);
    if (first_ != 0) return;
    first_at_ = now;
    first_ = number;
  }

  std::mutex mutex_;  // guards all but first_
  pid_t process_ = 0;
  bool ends_ = true;
  std::function<void()> clean_up_;
  Clock::time_point first_at_;
  std::atomic<int> first_{0};
};

}  // namespace

std::span<const int> stop_signals() {
  static constexpr int numbers[] = {SIGINT, SIGTERM, SIGUSR1, SIGHUP};
  static const bool hangs_up = [] {
    struct sigaction before {};
    return sigaction(SIGHUP, nullptr, &before) != 0 || before.sa_handler != SIG_IGN;
  }();
  return {numbers, hangs_up ? 4u : 3u};
}

void hold_stop_signals() { held(); }

sigset_t starting_signal_mask() {
  if (holding) return held().before;
  sigset_t now;
  pthread_sigmask(SIG_BLOCK, nullptr, &now);
  return now;
}

void catch_stop_signals() { Receiver::instance().start(false, {}); }

int stop_signal() { return Receiver::instance().first(); }

void end_on_stop_signals() { Receiver::instance().start(true, {}); }

EndsOnStopSignals::EndsOnStopSignals(std::function<void()> clean_up) {
  Receiver::instance().start(true, std::move(clean_up));
}

}  // namespace bv

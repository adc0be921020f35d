// Every wait of a host thread for something other than a device. A GPU works on while the host
// waits; the stand-in's queues run only on threads that call it, so each wait lets them proceed.
#pragma once
#include <poll.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <span>

namespace bv {

// Lets the queues of the devices that the calling thread uses proceed. Returns for how many
// milliseconds the caller may sleep before it calls again: 0 if something has moved, INT_MAX if
// nothing can.
using LetQueuesProceed = int (*)();
// Sets what every wait calls at each of its ticks; null: nothing.
void on_each_tick(LetQueuesProceed);
// A tick of a wait: returns for how long to sleep, at most `at_most` milliseconds.
int allowed_sleep_ms(int at_most);

void pause_ms(int milliseconds);
// As poll(); at_most < 0: without limit.
int wait_for_files(std::span<pollfd>, int at_most_ms);
// Sleeps while word == value, until it is woken; may return earlier.
void futex_wait(std::atomic<uint32_t>& word, uint32_t value, int at_most_ms);
void futex_wake_all(std::atomic<uint32_t>& word);

// A condition variable.
class Condition {
 public:
  void notify_all() { changed_.notify_all(); }
  // The lock is released while queues proceed: they may need what it guards.
  template <class Ready>
  void wait(std::unique_lock<std::mutex>& lock, Ready ready) {
    while (!wait_for(lock, std::chrono::hours(1), ready)) {
    }
  }
  // Returns ready().
  template <class Ready>
  bool wait_for(std::unique_lock<std::mutex>& lock, std::chrono::duration<double> at_most,
                Ready ready) {
    const Clock::time_point end =
        Clock::now() + std::chrono::duration_cast<Clock::duration>(at_most);
    while (!ready()) {
      lock.unlock();
      const auto sleep = std::chrono::milliseconds(allowed_sleep_ms(longest_ms));
      lock.lock();
      if (ready()) return true;
      if (Clock::now() >= end) return false;
      changed_.wait_until(lock, std::min(end, Clock::now() + sleep));
    }
    return true;
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr int longest_ms = 3600'000;
  std::condition_variable changed_;
};

}  // namespace bv

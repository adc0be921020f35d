#include "base/wait.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <ctime>

namespace bv {
namespace {

std::atomic<LetQueuesProceed> let_queues_proceed = nullptr;

}  // namespace

void on_each_tick(LetQueuesProceed proceed) { let_queues_proceed = proceed; }

int allowed_sleep_ms(int at_most) {
  const LetQueuesProceed proceed = let_queues_proceed;
  return proceed ? std::min(at_most, proceed()) : at_most;
}

void pause_ms(int milliseconds) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::milliseconds(milliseconds);
  for (auto left = end - Clock::now(); left.count() > 0; left = end - Clock::now()) {
    const auto ms = std::chrono::ceil<std::chrono::milliseconds>(left).count();
    usleep(static_cast<useconds_t>(allowed_sleep_ms(static_cast<int>(ms))) * 1000);
  }
}

int wait_for_files(std::span<pollfd> items, int at_most_ms) {
  using Clock = std::chrono::steady_clock;
  const auto ms = [](Clock::duration d) { return std::chrono::ceil<std::chrono::milliseconds>(d); };
  const auto end = Clock::now() + std::chrono::milliseconds(at_most_ms);
  int found = poll(items.data(), items.size(), 0);
  while (found == 0) {
    const auto left =
        at_most_ms < 0 ? INT_MAX : std::max<int64_t>(0, ms(end - Clock::now()).count());
    if (left == 0) return 0;
    const int sleep = allowed_sleep_ms(static_cast<int>(left));
    found = poll(items.data(), items.size(), sleep == INT_MAX ? -1 : sleep);
  }
  return found;
}

void futex_wait(std::atomic<uint32_t>& word, uint32_t value, int at_most_ms) {
  const int sleep = allowed_sleep_ms(at_most_ms);
  const timespec limit{sleep / 1000, (sleep % 1000) * 1000000L};
  syscall(SYS_futex, &word, FUTEX_WAIT, value, &limit, nullptr, 0);
}

void futex_wake_all(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace bv

#include "base/threads.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <future>
#include <vector>

#include "base/wait.h"

namespace bv {
namespace {

bool is_ready(const std::future<void>& result, std::chrono::milliseconds at_most) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point end = Clock::now() + at_most;
  do {
    const auto sleep =
        std::chrono::milliseconds(allowed_sleep_ms(static_cast<int>(at_most.count())));
    if (result.wait_until(std::min(end, Clock::now() + sleep)) == std::future_status::ready)
      return true;
  } while (Clock::now() < end);
  return false;
}

}  // namespace

void in_threads(int64_t count, int threads, const std::function<void(int64_t)>& work,
                std::chrono::milliseconds often, const std::function<void(int64_t)>& progress) {
  std::atomic<int64_t> next = 0, done = 0;
  const auto run = [&] {
    try {
      for (int64_t i; (i = next++) < count; ++done) work(i);
    } catch (...) {
      next = count;
      throw;
    }
  };
  std::vector<std::future<void>> running;
  for (int i = 0; i < threads; ++i) running.push_back(std::async(std::launch::async, run));
  std::exception_ptr error;
  for (auto& one : running) try {
      while (!is_ready(one, often))
        if (!error) progress(done);
      one.get();
    } catch (...) {
      if (!error) error = std::current_exception();
      next = count;
    }
  if (error) std::rethrow_exception(error);
}

}  // namespace bv

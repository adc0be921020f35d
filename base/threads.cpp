#include "base/threads.h"

#include <atomic>
#include <exception>
#include <future>
#include <vector>

namespace bv {

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
      while (one.wait_for(often) != std::future_status::ready)
        if (!error) progress(done);
      one.get();
    } catch (...) {
      if (!error) error = std::current_exception();
      next = count;
    }
  if (error) std::rethrow_exception(error);
}

}  // namespace bv

// Runs work in several threads and consumes the results in order.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace bv {

// Calls make(i) in worker threads and take(i, result) in the calling thread, for i = 0, 1, 2 ...
// until take returns false. At most 4 results per thread wait to be taken. An exception of make(i)
// is rethrown where take(i) would be called.
template <class Result, class Make, class Take>
bool in_order(int64_t count, int threads, const Make& make, const Take& take) {
  struct Slot {
    bool ready = false;
    Result result;
    std::exception_ptr error;
  };
  const int64_t ahead = int64_t{4} * threads;
  std::vector<Slot> slots(static_cast<size_t>(ahead));
  std::mutex mutex;
  std::condition_variable changed;
  int64_t next = 0, taken = 0;
  const auto work = [&] {
    std::unique_lock lock(mutex);
    while (true) {
      changed.wait(lock, [&] { return next >= count || next < taken + ahead; });
      if (next >= count) return;
      const int64_t i = next++;
      lock.unlock();
      Slot made;
      try {
        made.result = make(i);
      } catch (...) {
        made.error = std::current_exception();
      }
      made.ready = true;
      lock.lock();
      slots[static_cast<size_t>(i % ahead)] = std::move(made);
      changed.notify_all();
    }
  };
  struct Workers {
    std::mutex& mutex;
    std::condition_variable& changed;
    int64_t &next, count;
    std::vector<std::jthread> threads = {};
    ~Workers() {
      {
        const std::lock_guard lock(mutex);
        next = count;
      }
      changed.notify_all();
    }
  } workers{mutex, changed, next, count};
  for (int i = 0; i < threads; ++i) workers.threads.emplace_back(work);
  while (taken < count) {
    Slot slot;
    {
      std::unique_lock lock(mutex);
      Slot& place = slots[static_cast<size_t>(taken % ahead)];
      changed.wait(lock, [&] { return place.ready; });
      slot = std::exchange(place, {});
    }
    if (slot.error) std::rethrow_exception(slot.error);
    if (!take(taken, std::move(slot.result))) return false;
    const std::lock_guard lock(mutex);
    ++taken;
    changed.notify_all();
  }
  return true;
}

}  // namespace bv

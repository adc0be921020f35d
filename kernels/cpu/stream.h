// A stream of the cpu backend: a queue of work with a thread of its own. Work on the null stream
// runs at once, on the calling thread.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

#include "kernels/types.h"

namespace bv {

class CpuStream {
 public:
  CpuStream();
  CpuStream(const CpuStream&) = delete;
  ~CpuStream();  // runs all queued work first

  uint64_t submit(std::function<void()> work);  // returns its ticket: 1, 2, ...
  uint64_t last_ticket();
  // Waits until the work up to that ticket is done. Rethrows its exceptions.
  void wait(uint64_t ticket);

  Stream handle() { return reinterpret_cast<Stream>(this); }
  static CpuStream* of(Stream stream) { return reinterpret_cast<CpuStream*>(stream); }

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable work_came_, work_done_;
  std::deque<std::function<void()>> queue_;
  uint64_t submitted_ = 0, done_ = 0;
  bool closing_ = false;
  std::exception_ptr error_;
  std::thread thread_;  // last: it uses all of the above
};

void run_on(Stream stream, std::function<void()> work);
// Runs call(self, a copy of the operation) on a stream that is not null.
void run_copy_on(Stream stream, const void* operation, size_t bytes, void* self,
                 void (*call)(void* self, const void* operation));
void synchronize_stream(Stream stream);

// Runs work on changing streams in call order, without blocking the caller.
class StreamOrder {
 public:
  void submit(Stream stream, std::function<void()> work);
  void synchronize() const { synchronize_stream(last_); }  // until all of it is done

 private:
  Stream last_ = nullptr;
};

}  // namespace bv

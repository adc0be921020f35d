#include "kernels/cpu/stream.h"

#ifdef _OPENMP
#include <omp.h>
#endif

#include <utility>
#include <vector>

namespace bv {

CpuStream::CpuStream() : thread_([this] { run(); }) {}

CpuStream::~CpuStream() {
  {
    std::lock_guard lock(mutex_);
    closing_ = true;
  }
  work_came_.notify_one();
  thread_.join();
}

uint64_t CpuStream::submit(std::function<void()> work) {
  std::lock_guard lock(mutex_);
  queue_.push_back(std::move(work));
  work_came_.notify_one();
  return ++submitted_;
}

uint64_t CpuStream::last_ticket() {
  std::lock_guard lock(mutex_);
  return submitted_;
}

void CpuStream::wait(uint64_t ticket) {
  std::unique_lock lock(mutex_);
  work_done_.wait(lock, [&] { return done_ >= ticket; });
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void CpuStream::run() {
#ifdef _OPENMP
  omp_set_num_threads(1);  // the other threads continue with the null stream's work
#endif
  std::unique_lock lock(mutex_);
  while (true) {
    work_came_.wait(lock, [&] { return closing_ || !queue_.empty(); });
    if (queue_.empty()) return;
    const std::function<void()> work = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    std::exception_ptr error;
    try {
      work();
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    if (error && !error_) error_ = error;
    ++done_;
    work_done_.notify_all();
  }
}

void run_copy_on(Stream stream, const void* operation, size_t bytes, void* self,
                 void (*call)(void* self, const void* operation)) {
  const auto* const first = static_cast<const char*>(operation);
  CpuStream::of(stream)->submit(
      [=, copy = std::vector<char>(first, first + bytes)] { call(self, copy.data()); });
}

void run_on(Stream stream, std::function<void()> work) {
  if (stream)
    CpuStream::of(stream)->submit(std::move(work));
  else
    work();
}

void StreamOrder::submit(Stream stream, std::function<void()> work) {
  if (last_ && last_ != stream) {
    CpuStream* const before = CpuStream::of(last_);
    run_on(stream, [before, ticket = before->last_ticket()] { before->wait(ticket); });
  }
  last_ = stream;
  run_on(stream, std::move(work));
}

void synchronize_stream(Stream stream) {
  if (!stream) return;
  CpuStream* queue = CpuStream::of(stream);
  queue->wait(queue->last_ticket());
}

}  // namespace bv

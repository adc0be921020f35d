#include "base/background.h"

#include <utility>

#include "base/error.h"

namespace bv {

Background::~Background() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Background::post(std::function<void()> job) {
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(job));
    if (!thread_.joinable()) thread_ = std::thread([this] { work(); });
  }
  changed_.notify_all();
}

void Background::check() {
  std::exception_ptr error;
  {
    const std::lock_guard lock(mutex_);
    error = std::exchange(error_, nullptr);
  }
  if (error) std::rethrow_exception(error);
}

void Background::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return jobs_.empty(); });
}

void Background::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return ending_ || !jobs_.empty(); });
    if (jobs_.empty()) return;
    const std::function<void()> job = std::move(jobs_.front());
    lock.unlock();
    std::exception_ptr error;
    try {
      job();
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    if (error && !error_) error_ = error;
    jobs_.pop_front();
    changed_.notify_all();
  }
}

void OptionalJobs::post(Background& background, std::function<void()> job) {
  background.post([state = state_, job = std::move(job)] {
    {
      const std::lock_guard lock(state->mutex);
      if (state->failed && state->give_up) return;
    }
    try {
      job();
    } catch (const std::exception& e) {
      const std::lock_guard lock(state->mutex);
      if (!std::exchange(state->failed, true)) state->untold = error_line(e);
    }
  });
}

std::string OptionalJobs::failure() {
  const std::lock_guard lock(state_->mutex);
  return std::exchange(state_->untold, {});
}

}  // namespace bv

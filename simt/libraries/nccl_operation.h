// A collective in flight concurrently with the device's other operations. Its parts are coroutines,
// which suspend when a peer has to act first, and resume once it has.
#pragma once
#include <atomic>
#include <chrono>
#include <coroutine>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "simt/host/operations.h"
#include "simt/libraries/nccl_job.h"

inline namespace simt_cuda {
struct SimtNcclComm;
}

namespace simt::nccl {

// A part's wait: until the peer, a rank of the communicator, raises the word to the value.
struct Until {
  const std::atomic<uint64_t>* word;
  uint64_t value;
  int peer;
  bool is_over() const { return word->load(std::memory_order_acquire) >= value; }
};

class Part {
 public:
  struct promise_type {
    Until until{};
    std::exception_ptr error;

    Part get_return_object() {
      return Part(std::coroutine_handle<promise_type>::from_promise(*this));
    }
    std::suspend_always initial_suspend() { return {}; }
    std::suspend_always final_suspend() noexcept { return {}; }
    void return_void() {}
    void unhandled_exception() { error = std::current_exception(); }
    struct Awaiter {
      bool over;
      bool await_ready() const { return over; }
      void await_suspend(std::coroutine_handle<>) const {}
      void await_resume() const {}
    };
    Awaiter await_transform(const Until& u) {
      until = u;
      return {u.is_over()};
    }
  };

  Part() = default;
  Part(Part&& other) noexcept : handle_(std::exchange(other.handle_, {})) {}
  Part& operator=(Part&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Part() {
    if (handle_) handle_.destroy();
  }
  explicit operator bool() const { return bool(handle_); }
  const Until& until() const { return handle_.promise().until; }
  // Proceeds as far as possible. True: it has ended.
  bool advance() {
    while (!handle_.done() && (!until().word || until().is_over())) {
      handle_.promise().until = {};
      handle_.resume();
      if (const auto error = handle_.promise().error) std::rethrow_exception(error);
    }
    return handle_.done();
  }

 private:
  explicit Part(std::coroutine_handle<promise_type> handle) : handle_(handle) {}
  std::coroutine_handle<promise_type> handle_;
};

// One NCCL call.
struct Call {
  std::string what;  // "ncclRecv from", for reports
  int lane;          // calls of the same lane run one after another, lanes concurrently
  std::function<Part()> begin;
};

// The calls of a group to one communicator on one stream, or a single call.
class Operation final : public host::UnderWay {
 public:
  Operation(SimtNcclComm& comm, std::shared_ptr<const std::vector<Call>> calls);
  ~Operation() override;
  bool advance() override;
  void sleep(const std::vector<host::UnderWay*>& all) override;

 private:
  struct Lane {
    int number;
    std::deque<const Call*> calls;  // the first one has begun
    Part part;
  };
  void begin();
  void run_lanes();
  bool on_link() const { return std::chrono::steady_clock::now() < carried_; }
  void add_waits(std::vector<Wait>&) const;

  SimtNcclComm& comm_;
  std::shared_ptr<const std::vector<Call>> calls_;
  std::vector<Lane> lanes_;
  uint64_t number_ = 0;                              // set when it begins
  std::chrono::steady_clock::time_point carried_{};  // when the link has carried what it sent
};

}  // namespace simt::nccl

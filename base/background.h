// A thread that does jobs one after another, in the order in which they were given.
#pragma once
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

namespace bv {

class Background {
 public:
  Background() = default;
  ~Background();  // does what is left
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  void post(std::function<void()> job);
  // Rethrows, once, what the first failed job threw.
  void check();
  void wait();  // until all is done

 private:
  void work();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> jobs_;  // the first one is being done
  std::exception_ptr error_;
  bool ending_ = false;
  std::thread thread_;  // from the first job on
};

// Jobs that a run can do without: a failure is only reported.
class OptionalJobs {
 public:
  // give_up: no job is done after one that failed.
  explicit OptionalJobs(bool give_up) : state_(std::make_shared<State>()) {
    state_->give_up = give_up;
  }
  // The job may outlive this.
  void post(Background&, std::function<void()> job);
  // The line of the first failure, once; before and after it, nothing.
  std::string failure();

 private:
  struct State {
    std::mutex mutex;
    bool give_up = false, failed = false;
    std::string untold;
  };
  std::shared_ptr<State> state_;
};

}  // namespace bv

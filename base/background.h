// A thread that runs jobs in the order in which they were posted.
#pragma once
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "base/wait.h"

namespace bv {

class Background {
 public:
  Background() = default;
  ~Background();  // runs the remaining jobs
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  void post(std::function<void()> job);
  // Rethrows, once, the exception of the first failed job.
  void check();
  void wait();  // until all posted jobs have run

 private:
  void work();

  std::mutex mutex_;
  Condition changed_;
  std::deque<std::function<void()>> jobs_;  // the first one is running
  std::exception_ptr error_;
  bool ending_ = false;
  std::thread thread_;  // started with the first job
};

// Jobs that a run can do without: their failure is only reported.
class OptionalJobs {
 public:
  // give_up: once a job has failed, no further job runs.
  explicit OptionalJobs(bool give_up) : state_(std::make_shared<State>()) {
    state_->give_up = give_up;
  }
  // The job may outlive this object.
  void post(Background&, std::function<void()> job);
  // The error line of the first failure, returned once; empty if there is none to report.
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

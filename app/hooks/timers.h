// Measures the records' times and rates with the host's clock, each time the host reads a result.
#pragma once
#include <chrono>
#include <deque>

#include "engine/run/run.h"

namespace bv {

class Timers : public Hook {
 public:
  int priority() const override { return priority::measuring; }
  void before_train(Run&) override { epoch_began_ = Clock::now(); }
  void before_train_iter(Run&) override { begun_.push_back(Clock::now()); }
  void after_train_iter(Run&, StepRecord&) override;
  void before_test(Run& run) override {
    test_began_ = Clock::now();
    saved_before_test_ = run.save_seconds;
  }
  void after_test(Run&, EpochRecord&) override;
  void after_train_epoch(Run&, EpochRecord&) override;

 private:
  using Clock = std::chrono::steady_clock;
  struct Sums {
    double steps = 0, images = 0, seconds = 0, data_seconds = 0, bubble_seconds = 0;
  };

  std::deque<Clock::time_point> begun_;  // starts of updates whose result has not been read
  Clock::time_point epoch_began_, test_began_, last_read_;
  double saved_before_test_ = 0;
  Sums window_;  // since the last step line
  Sums epoch_;   // training only, in this process
};

}  // namespace bv

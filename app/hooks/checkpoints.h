// Saves by --save-every, after each evaluation that is the best so far and at the end of the run,
// on all ranks. A checkpoint due at the end of an epoch is saved before the evaluation, which then
// adds its outcome. A --save-every in time units is measured by rank 0; its request is reduced with
// the gradients, so that all ranks save after the same step.
#pragma once
#include <chrono>

#include "engine/run/run.h"

namespace bv {

class Checkpoints : public Hook {
 public:
  int priority() const override { return priority::saving; }
  bool reads_weights(const Run& run) const override { return due(run, false); }
  void before_train(Run&) override { waited_ = saved_ = Clock::now(); }
  void before_train_iter(Run&) override;
  void after_train_iter(Run&, StepRecord&) override;
  void before_test(Run&) override;
  void after_train_epoch(Run&, EpochRecord&) override;
  void after_train(Run&) override;

 private:
  static bool due(const Run&, bool epoch_ended);
  void save(Run&, bool best);
  static void settle(Run&, bool best);
  static void finish(Run&);
  static void tell_written(Run&);
  void wait_for_disk(Run&);

  using Clock = std::chrono::steady_clock;
  Clock::time_point waited_;  // when this hook last waited for the disk
  Clock::time_point saved_;   // when the last checkpoint began
};

}  // namespace bv

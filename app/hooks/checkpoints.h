// Saves checkpoints on all ranks: as --save-every specifies, after each evaluation that is the best
// so far, and at the end of the run. A checkpoint due at the end of an epoch is saved before the
// evaluation, whose outcome is added to it later. Rank 0 measures a --save-every in time units; its
// request is reduced with the gradients, so that all ranks save after the same step.
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

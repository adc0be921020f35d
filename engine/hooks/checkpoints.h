// Saves by --save-every, each best evaluation, and the end of the run, on all ranks.
#pragma once
#include "engine/run.h"

namespace bv {

class Checkpoints : public Hook {
 public:
  int priority() const override { return priority::saving; }
  bool reads_weights(const Run& run) const override { return due(run, false); }
  void after_train_iter(Run&, StepRecord&) override;
  void after_train_epoch(Run&, EpochRecord&) override;
  void after_train(Run&) override;

 private:
  static bool due(const Run&, bool epoch_ended);
  static void save(Run&, bool best);
};

}  // namespace bv

// Prints the run: its first lines, then one per step and one per epoch. On a
// terminal a progress bar stands in for the steps.
#pragma once
#include "engine/run/run.h"

namespace bv {

class Lines : public Hook {
 public:
  int priority() const override { return priority::reporting; }
  void before_train(Run&) override;
  void after_train_iter(Run& run, StepRecord& record) override {
    if (record.due && !on_terminal()) run.console->step(record);
  }
  void after_train_epoch(Run&, EpochRecord&) override;
};

class Progress : public Hook {
 public:
  int priority() const override { return priority::reporting; }
  void after_train_iter(Run& run, StepRecord& record) override { run.console->progress(record); }
};

}  // namespace bv

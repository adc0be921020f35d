// Prints the run: its first lines, then a line per step and per epoch. On a terminal, a progress
// bar replaces the steps' lines.
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

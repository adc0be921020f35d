// Ends a run whose validation loss hasn't fallen for some evaluations.
#pragma once
#include "engine/run/run.h"

class EarlyStop : public bv::Hook {
 public:
  explicit EarlyStop(int patience) : patience_(patience) {}
  void after_test(bv::Run& run, bv::EpochRecord& record) override {
    const bool better = record.val_loss < best_ || !best_;
    if (better) best_ = record.val_loss;
    worse_ = better ? 0 : worse_ + 1;
    if (worse_ < patience_) return;
    run.end = run.progress.step;
    if (run.console) run.console->line("val loss hasn't fallen: stopping");
  }

 private:
  int patience_, worse_ = 0;
  std::optional<double> best_;
};

// What a process takes of memory: the plan's peak.
#pragma once
#include "engine/run.h"

namespace bv {

class MemoryUse : public Hook {
 public:
  int priority() const override { return priority::measuring; }
  void after_train_epoch(Run& run, EpochRecord& record) override {
    record.peak_memory_bytes = static_cast<int64_t>(run.trainer.plan().peak());
  }
};

}  // namespace bv

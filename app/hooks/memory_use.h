// Records peak memory of rank 0's process: the plan's, and what the system counts, on the host.
#pragma once
#include "engine/run/run.h"

namespace bv {

class MemoryUse : public Hook {
 public:
  int priority() const override { return priority::measuring; }
  void after_train_epoch(Run&, EpochRecord&) override;
};

}  // namespace bv

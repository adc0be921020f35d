// Records the planned device memory of rank 0's process and its peak host memory.
#pragma once
#include "engine/run/run.h"

namespace bv {

class MemoryUse : public Hook {
 public:
  int priority() const override { return priority::measuring; }
  void after_train_epoch(Run&, EpochRecord&) override;
};

}  // namespace bv

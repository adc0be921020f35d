// Records planned memory, this process's memory on the host and its peak there, and on the device
// the memory in use by all programs and this process's peak.
#pragma once
#include "engine/run/run.h"

namespace bv {

class MemoryUse : public Hook {
 public:
  int priority() const override { return priority::measuring; }
  void after_train_epoch(Run&, EpochRecord&) override;
};

}  // namespace bv

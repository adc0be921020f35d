// Records the planned memory; on the host, this process's memory and its peak; on the device, the
// memory in use by all programs and this process's peak.
#pragma once
#include "engine/run/run.h"

namespace bv {

class MemoryUse : public Hook {
 public:
  int priority() const override { return priority::measuring; }
  void after_train_epoch(Run&, EpochRecord&) override;
};

}  // namespace bv

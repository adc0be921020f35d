// Records this process's planned memory, and the memory it uses on the host and the device.
#pragma once
#include "engine/run/run.h"

namespace bv {

class MemoryUse : public Hook {
 public:
  int priority() const override { return priority::measuring; }
  void after_train_epoch(Run&, EpochRecord&) override;
};

}  // namespace bv

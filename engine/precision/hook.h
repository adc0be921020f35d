// Before each epoch, on all ranks: has --amp-policy decide and the trainer compute accordingly.
#pragma once
#include "engine/run.h"

namespace bv {

class AdaptivePrecision : public Hook {
 public:
  int priority() const override { return priority::measuring; }
  void before_train(Run&) override;
  void before_train_epoch(Run&) override;
  void after_train_epoch(Run&, EpochRecord&) override;
};

}  // namespace bv

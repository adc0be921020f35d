// --amp-policy: decides, on all ranks, the precision of each epoch before it begins.
#pragma once
#include "engine/run/run.h"

namespace bv {

class AdaptivePrecision : public Hook {
 public:
  int priority() const override { return priority::measuring; }
  void before_train(Run&) override;
  void before_train_epoch(Run&) override;
  void after_train_epoch(Run&, EpochRecord&) override;
};

}  // namespace bv

// --amp-policy: before each epoch, on all ranks, decides which precision the trainer computes in.
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

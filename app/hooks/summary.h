// A run's last lines. All ranks count the bad images together.
#pragma once
#include "engine/run/run.h"

namespace bv {

class Summary : public Hook {
 public:
  int priority() const override { return priority::closing; }
  void after_train(Run&) override;
};

}  // namespace bv

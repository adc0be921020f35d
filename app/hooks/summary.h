// Prints a run's last lines. All ranks take part, to count the bad images that any of them skipped.
#pragma once
#include "engine/run/run.h"

namespace bv {

class Summary : public Hook {
 public:
  int priority() const override { return priority::closing; }
  void after_train(Run&) override;
};

}  // namespace bv

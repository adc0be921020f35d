// Why an operation moves more than a tenth beyond what it needs, or a kernel's accesses to shared
// memory conflict: one line for each, which the tables repeat. Nothing of either kind is without
// one.
#pragma once
#include <set>
#include <string>

#include "bench/counters/step.h"

namespace bv::counting {

class Reasons {
 public:
  // A line for each operation and kernel of the step that needs one.
  std::string lines(const StepCounts&);
  // Lists what lacks a reason and, if all models were counted, the reasons that nothing needs.
  std::string problems(bool all_models) const;

 private:
  std::string why(const std::string& what, const std::string& name, const std::string& shape);

  std::set<size_t> used_;
  std::string unexplained_;
};

}  // namespace bv::counting

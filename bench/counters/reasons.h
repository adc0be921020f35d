// Reasons why an operation moves over 10 % more bytes than it needs, or a kernel's accesses to
// shared memory conflict: one line each, repeated in the tables. Every such case must have a
// reason.
#pragma once
#include <set>
#include <string>

#include "bench/counters/step.h"

namespace bv::counting {

class Reasons {
 public:
  // One line for each such case in the step, with its reason.
  std::string lines(const StepCounts&);
  // Lists cases without a reason and, if all models were counted, reasons without a case.
  std::string problems(bool all_models) const;

 private:
  std::string why(const std::string& what, const std::string& name, const std::string& shape);

  std::set<size_t> used_;
  std::string unexplained_;
};

}  // namespace bv::counting

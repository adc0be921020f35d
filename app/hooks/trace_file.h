// --trace FILE: a timeline of all processes as a Chrome trace.
#pragma once
#include <string>

#include "engine/run/run.h"

namespace bv {

// Throws UserError if the file's folder doesn't exist.
void check_trace_file(const std::string& path);

class TraceFile : public Hook {  // runs on every rank
 public:
  int priority() const override { return priority::closing; }
  void before_train(Run&) override;
  void after_train(Run&) override;
};

}  // namespace bv

// Waiting for a run that is started again.
#pragma once
#include <cstdlib>
#include <filesystem>
#include <string>

#include "tests/program/program.h"

namespace bv::test {

// Whether the run's log has this many restarts and a step after the one in which the run ended:
// before that, a second death in the same step would end the run for good.
inline bool trains_again(const std::string& run, int number) {
  if (!std::filesystem::exists(run + "/metrics.jsonl")) return false;
  const auto last = [&](const char* kind, const char* member) {
    return std::atoll(last_metric(run, kind, member).c_str());
  };
  return last("restart", "restart") >= number &&
         last("step", "step") > last("restart", "ended_in_step");
}

}  // namespace bv::test

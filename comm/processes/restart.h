// A restart of a failed run, as the launcher describes it to the processes that it starts.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace bv {

// How a run's processes failed.
struct Failure {
  int rank = 0;
  int64_t step = 0;   // of that rank or of the one that reported it, from 1; 0: before the first
  std::string cause;  // "rank 1 was killed by SIGKILL (out of memory?)"
  bool seen = false;  // by the launcher of that rank; else reported by its peers
};

struct Restart {
  int number = 0, most = 0;  // --max-restarts; number 0: the first start
  Failure after;             // the failure before this restart
  std::string folder;        // the run's; empty: none was claimed before the failure
  int64_t step_before = 0;   // Failure::step of the last earlier failure where it wasn't 0
  int processes = 0;         // in the start that failed; 0: not known
  // Exit code if the launcher's processes have ended for good; after.cause then has their error.
  std::optional<int> ends = {};
  int64_t furthest = 0;  // the furthest step of any start
  int fruitless = -1;    // restarts in a row without progress
  // The restarts before this one whose processes reached no step and so may not have logged them:
  // the last `most_unlogged`, oldest first.
  std::vector<Restart> unlogged = {};
  static constexpr size_t most_unlogged = 50;  // an environment variable has at most 128 KiB
};

// The environment variable that holds the Restart as JSON; not set at the first start.
inline constexpr const char* restart_variable = "BAREVISION_RESTART";
std::string to_json(const Restart&);  // without what only launchers need
// Throws UserError if the variable holds no such JSON.
std::optional<Restart> restart_from_environment();

}  // namespace bv

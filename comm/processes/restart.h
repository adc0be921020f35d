// The restart of a run that failed, as the launcher tells it to the processes that it starts.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace bv {

// How a run's processes came to an end.
struct Failure {
  int rank = 0;
  int64_t step = 0;   // on which that rank worked, counted from 1; 0: before its first
  std::string cause;  // "rank 1 was killed by SIGKILL (out of memory?)"
  bool seen = false;  // by the launcher of that rank; else told by a rank that lost it
};

struct Restart {
  int number = 0, most = 0;  // --max-restarts; number 0: the first start
  Failure after;             // the end that it follows
  std::string folder;        // the run's; empty: none was claimed before that end
  int64_t step_before = 0;   // step of the last end in a step before that one
  int processes = 0;         // that were started before that end; 0: not known
  // Exit code of a launcher whose processes have ended for good, `after` with a mistake's line.
  std::optional<int> ends = {};
  int64_t furthest = 0;  // step to which any start has come
  int fruitless = -1;    // restarts in a row that came no further
  // The restarts before this one whose processes came to no step, and so may not have logged them:
  // the last `most_unlogged`, oldest first.
  std::vector<Restart> unlogged = {};
  static constexpr size_t most_unlogged = 50;  // an environment variable has at most 128 KiB
};

// The environment variable that has it as JSON; not set at the first start.
inline constexpr const char* restart_variable = "BAREVISION_RESTART";
std::string to_json(const Restart&);  // without what only launchers need
// Throws UserError if the variable is not like that.
std::optional<Restart> restart_from_environment();

}  // namespace bv

// What a run says of itself: its first lines, its last ones, and where the time went.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "engine/setup.h"

namespace bv {

struct RunHead {
  std::string device;
  size_t peak_bytes;  // of one process
  int64_t steps_done, steps_end;
};
std::vector<std::string> head_lines(const Setup&, const RunHead&);

struct RunEnd {
  bool stopped;  // by a signal
  bool capped;   // by --steps, before the schedule's end
  bool has_best;
  int64_t step;
};
// Where the weights are, and the command to go on.
std::vector<std::string> end_lines(const Options&, const RunEnd&);

// Time by kind of node, the longest first.
std::vector<std::string> profile_lines(const Profile&);

}  // namespace bv

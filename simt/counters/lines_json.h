// A kernel's counts by instruction, and their JSON.
#pragma once
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "simt/counters/lines.h"

namespace simt {

// Counts of all launches of a kernel; addresses and the timeline are from its first launch.
struct LaunchLines {
  struct Line {
    LineCounts counts;
    std::vector<LineSample> samples;
  };
  size_t number = 0;  // in the order of the kernels' first launches
  Extent grid{}, block{};
  size_t shared_bytes = 0;
  Counters counters;
  std::vector<KernelArgument> arguments;  // of the first launch, if known
  std::vector<uint64_t> kept;             // blocks
  std::vector<SharedName> names;
  std::map<uint64_t, Line> lines;
  std::map<uint32_t, PieceCounts> pieces;
  std::vector<LineSegment> timeline;
  std::map<uint64_t, std::source_location> sites;
};

// The blocks of a launch whose addresses are kept.
std::vector<uint64_t> kept_blocks(uint64_t blocks);

// {"kernels": [{"name", "grid", "block", "shared_bytes", "counters": {...},
//   "arguments": [[begin, end, bytes of an element] ...], "kept": [block ...],
//   "names": [[name, bytes, bytes of an element, [extent ...]] ...],
//   "lines": [[place, kind, width, site, executions, lanes, partial,
//     requests, sectors, bytes, needed, used, shared requests, turns, conflicts,
//     samples: [[block, warp, number, mask, space, name, addresses] ...]] ...],
//   "pieces": [[place, warps, lanes] ...],
//   "timeline": [[block, warp, place, kind, requests, sectors, turns, mma, exchanges] ...]} ...]}
// A place is an offset from the program's load address, as addr2line expects; for a call, it is
// that of the return address. Addresses are those of the mask's lanes: [first, step] if all lanes
// are one step apart, otherwise [first, [each lane's distance from the first ...]].
nlohmann::ordered_json to_json(const std::map<std::string, LaunchLines>&);

}  // namespace simt

// Writes a trace for chrome://tracing and Perfetto (ui.perfetto.dev): a row per rank, with a line
// for computation and a line per channel of gradients.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "engine/trace/trace.h"

namespace bv {

struct RankTrace {
  std::string name;  // "rank 1, stage 0, replica 1"
  std::vector<Span> spans;
};

// Chrome trace of all ranks, in rank order. A gap of 10 microseconds or longer between a rank's
// first and last span is shown as idle.
std::string chrome_trace(std::span<const RankTrace> ranks);

}  // namespace bv

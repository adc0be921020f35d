// A trace as chrome://tracing and Perfetto (ui.perfetto.dev) show it: a row for each rank, with a
// line for what it computes and one for each channel of its gradients.
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

// Chrome trace of all ranks, given in order. A rank with nothing to do for 10 microseconds or
// longer, between its first span and its last, is shown as idle.
std::string chrome_trace(std::span<const RankTrace> ranks);

}  // namespace bv

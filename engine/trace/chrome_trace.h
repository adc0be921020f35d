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

// By rank. Where a rank computes nothing for a while, between its first span and its last, it is
// idle.
std::string chrome_trace(std::span<const RankTrace> ranks);

}  // namespace bv

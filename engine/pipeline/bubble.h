// The fraction of a step that pipeline stages wait, computed from the time of each part.
#pragma once
#include <span>

#include "engine/pipeline/tasks.h"

namespace bv {

struct PartTime {
  double forward, backward;
};

// Fraction of a step that stages are idle, averaged over the stages. parts: one time for each of
// PipelineShape::parts(). Exchanges take no time themselves; an exchange ends when both sides of
// all its messages are ready. Activations and gradients are exchanged concurrently, and a task
// waits only for its own input.
double bubble(const PipelineShape&, std::span<const PartTime> parts);

}  // namespace bv

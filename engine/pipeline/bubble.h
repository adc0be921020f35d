// How much of a step the stages wait, computed from what each part of the model takes.
#pragma once
#include <span>

#include "engine/pipeline/tasks.h"

namespace bv {

struct PartTime {
  double forward, backward;
};

// Of the step, on average over the stages. parts: of PipelineShape::parts(). Exchanges take no time
// themselves; one is over once both sides of all its messages have come to it. Activations are
// exchanged beside gradients, and a task waits for what it receives alone.
double bubble(const PipelineShape&, std::span<const PartTime> parts);

}  // namespace bv

// How much of a step the stages wait, computed from what each part of the model takes.
#pragma once
#include <span>

#include "engine/pipeline/tasks.h"

namespace bv {

struct PartTime {
  double forward, backward;
};

// Fraction of a step that stages are idle, averaged over the stages. parts: those of
// PipelineShape::parts(). Exchanges take no time themselves; one ends when both sides of all its
// messages have reached it. Activations and gradients are exchanged concurrently, and a task waits
// only for its own input.
double bubble(const PipelineShape&, std::span<const PartTime> parts);

}  // namespace bv

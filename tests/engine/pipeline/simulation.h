// A pipeline's step, event by event: when each task runs, and whether stages wait for each other
// for ever. Exchanges take no time themselves; one ends when both sides of all its messages have
// reached it.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "engine/pipeline/bubble.h"

namespace bv::test {

// When a task runs, in the unit of PartTime, from the step's start.
struct Timed {
  Task task;
  double begin, end;
};

struct Timeline {
  std::vector<std::vector<Timed>> stages;
  double length = 0;  // of the step
  double busy = 0;    // sum over the stages

  // The part of the step that stages wait, on average.
  double bubble() const {
    return length > 0 ? 1 - busy / (length * static_cast<double>(stages.size())) : 0;
  }
};

// How a stage exchanges, as StageLinks does. beside: activations on one channel and gradients on
// another, and a task waits for what it receives alone; at_once: a task waits for all of the round
// before it.
enum class Exchanging : uint8_t { overlapped, synchronous };

// parts: of PipelineShape::parts(). Throws std::logic_error if the stages would wait for each other
// for ever, or if a message meets another one's receiver.
Timeline simulate(const PipelineShape&, std::span<const PartTime> parts,
                  Exchanging = Exchanging::overlapped);

}  // namespace bv::test

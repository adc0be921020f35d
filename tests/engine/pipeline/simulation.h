// Simulates a pipeline's step event by event: when each task runs, and whether stages deadlock.
// Exchanges take no time themselves: each ends when both sides of all its messages have reached it.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "engine/pipeline/bubble.h"

namespace bv::test {

// The time at which a task runs, in the unit of PartTime, from the step's start.
struct Timed {
  Task task;
  double begin, end;
};

struct Timeline {
  std::vector<std::vector<Timed>> stages;
  double length = 0;  // of the step
  double busy = 0;    // sum over the stages

  // The fraction of the step that stages wait, on average.
  double bubble() const {
    return length > 0 ? 1 - busy / (length * static_cast<double>(stages.size())) : 0;
  }
};

// How stages exchange (see StageLinks). overlapped: activations on one channel, gradients on
// another, and a task waits only for its own input; synchronous: a task waits for the whole round
// before it.
enum class Exchanging : uint8_t { overlapped, synchronous };

// parts: one time per part. Throws std::logic_error if the stages would deadlock, or if a message
// meets the wrong receiver.
Timeline simulate(const PipelineShape&, std::span<const PartTime> parts,
                  Exchanging = Exchanging::overlapped);

}  // namespace bv::test

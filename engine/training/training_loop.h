// The training loop: micro-steps, updates, epochs, evaluation.
#pragma once
#include "engine/setup.h"
#include "kernels/backend.h"

namespace bv {

// Returns the exit code: 0, or 128 + the signal that ended the run. No communicator: one process.
int train(Setup, Backend&, Communicator* communicator, int cores);

}  // namespace bv

// The training loop: micro-steps, updates, epochs, evaluation.
#pragma once
#include "engine/setup.h"
#include "kernels/backend.h"

namespace bv {

// Runs to the end and returns the exit code: 0, or 128 + the signal that ended the run. Throws
// UserError or RunError. `communicator` is null for one process.
int train(Setup, Backend&, Communicator* communicator, int cores);

}  // namespace bv

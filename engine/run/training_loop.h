// The training loop: micro-steps, updates, epochs, evaluation. Hooks do everything else.
#pragma once
#include <functional>

#include "comm/communicator.h"
#include "engine/run/hooks.h"
#include "engine/setup/setup.h"
#include "kernels/backend.h"

namespace bv {

// Returns the exit code: 0, 1 if a log is incomplete, or 128 + the signal that ended the run. No
// communicator: one process.
using MakeHooks = std::function<HookList(const Run&)>;
int train(Setup, Backend&, Communicator* communicator, int cores, const MakeHooks&);

}  // namespace bv

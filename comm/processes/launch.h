// The launcher: starts N workers of this program, supervises them and returns their exit code.
#pragma once
#include <string>

#include "comm/processes/launch_options.h"

namespace bv {

// Starts `nproc` workers with argv unchanged (tests start another `program`) and returns the exit
// code to end with. If a worker fails, the run ends: the launcher prints which rank died first and
// why (except for a user error, which the worker has printed) and returns that worker's exit code.
// Up to max_restarts times it starts all workers again instead, after a pause that grows from 1 s
// to 30 s while the run makes no progress; not after a user error, a stop signal or a second end in
// the same step. The workers find the restart in their environment (restart.h). A worker that fails
// twice in a row before its first step is left out, with its device, if min_nproc allows it: the
// next start has the largest smaller number of workers that `fits`.
// Stop signals are passed on; if the workers then exit with 128 + signal, so does the launcher. A
// second signal kills the workers, as does the lack of a heartbeat a few seconds after the first
// signal. Workers die with the launcher. Must be called before any thread starts.
int run_launcher(const Launch&, const std::string& program = "/proc/self/exe");

}  // namespace bv

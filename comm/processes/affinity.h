// Divides the machine's cores among the processes.
#pragma once
#include <sched.h>

#include <vector>

#include "comm/processes/world.h"

namespace bv {

struct CoreShare {
  cpu_set_t cpus{};  // to pin to; empty: unknown, no pinning
  int cores = 1;     // whole cores among them (two hyperthreads are one), at least 1
};

// Share `part` of `parts` of the cores that this process may use. A core's hyperthreads stay
// together; with fewer cores than parts, several parts share a core.
CoreShare share_of_cores(int part, int parts);
// The same for given cores; `cores` lists each core's CPUs.
CoreShare share_of_cores(const std::vector<std::vector<int>>& cores, int part, int parts);

int usable_cores();
bool pin_this_process(const CoreShare&);  // async-signal-safe; false on failure

// Pins a worker to its share; called before any thread starts. Returns the number of threads to
// use.
int pin_to_share(const World&);

// OMP_NUM_THREADS if the user set it, otherwise 0. Under other launchers 1 counts as not set, since
// torchrun sets it. Throws UserError if it is not a number of threads.
int requested_threads(bool launched);

}  // namespace bv

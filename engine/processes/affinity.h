// Sharing out the machine's cores among processes.
#pragma once
#include <sched.h>

#include <vector>

namespace bv {

struct CoreShare {
  cpu_set_t cpus{};  // to be pinned to; empty: unknown, no pinning
  int cores = 1;     // whole cores among them (two hyperthreads are one), at least 1
};

// What is `part` of `parts` of the cores that this process may use. Hyperthreads of a core stay
// together; where there are fewer cores than parts, several parts get the same core.
CoreShare share_of_cores(int part, int parts);
// The arithmetic of it: `cores` lists each core's CPUs.
CoreShare share_of_cores(const std::vector<std::vector<int>>& cores, int part, int parts);

int usable_cores();
bool pin_this_process(const CoreShare&);  // async-signal-safe; false where it failed

}  // namespace bv

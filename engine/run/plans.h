// Computes the memory that a run's processes need, without allocating it.
#pragma once
#include <iosfwd>
#include <string>
#include <vector>

#include "engine/setup/setup.h"

namespace bv {

// The plans of one process per stage; all replicas have the same plan.
std::vector<MemoryPlan> stage_plans(const Setup&, Backend&);

// Prints a table with a line per stage.
void print_stages(std::ostream&, const Setup&, const std::vector<MemoryPlan>&);

// The bytes available to each process; shared: a machine's processes divide one memory, that of the
// host or, with --oversubscribe, that of a GPU.
struct MemoryLimit {
  size_t bytes;
  bool shared;
};
// Advice on a plan that does not fit: "; --batch 32 takes 13.7 GiB, --recompute blocks takes 8.1
// GiB".
std::string what_fits(const Setup&, Backend&, MemoryLimit);

}  // namespace bv

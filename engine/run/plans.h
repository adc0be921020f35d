// The memory that a run's processes need, planned without taking any.
#pragma once
#include <iosfwd>
#include <string>
#include <vector>

#include "engine/setup/setup.h"

namespace bv {

// Plans of one process per stage; replicas have equal ones.
std::vector<MemoryPlan> stage_plans(const Setup&, Backend&);

// A table with a line for each stage.
void print_stages(std::ostream&, const Setup&, const std::vector<MemoryPlan>&);

// The bytes that each process may have; shared: by all processes of its machine.
struct MemoryLimit {
  size_t bytes;
  bool shared;
};
// Advice on a plan that does not fit: "; --batch 32 takes 13.7 GiB, --recompute blocks takes 8.1
// GiB".
std::string what_fits(const Setup&, Backend&, MemoryLimit);

}  // namespace bv

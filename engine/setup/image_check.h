// Every file's header is looked at before a run begins, and bad images are counted when it ends.
#pragma once
#include <cstdint>
#include <vector>

#include "engine/setup/setup.h"
#include "kernels/backend.h"

namespace bv {

// Called by all ranks; rank 0 looks. A bad one ends the run with its name, or is noted and skipped.
void check_images(Setup&, Communicator*, Backend&);

// The numbers of all ranks, each once.
std::vector<int64_t> union_of_ranks(std::vector<int64_t> numbers, Communicator*, Backend&);

}  // namespace bv

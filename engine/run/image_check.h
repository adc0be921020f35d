// Reads every file's header before a run begins, and counts bad images when it ends.
#pragma once
#include <cstdint>
#include <vector>

#include "comm/communicator.h"
#include "engine/setup/setup.h"
#include "kernels/backend.h"

namespace bv {

// Collective; rank 0 reads. A bad image is an error that names it, or is skipped with a note.
void check_images(Setup&, Communicator*, Backend&);

// The union of all ranks' numbers. Collective.
std::vector<int64_t> union_of_ranks(std::vector<int64_t> numbers, Communicator*, Backend&);

}  // namespace bv

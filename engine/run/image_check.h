// Finds bad images before a run begins, and gathers those that it finds later.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "engine/setup/setup.h"
#include "kernels/backend.h"

namespace bv {

// Reads every file's header and, if bad images are skipped, decodes the images of a small set.
// Collective; rank 0 reads. A bad image is an error that names it, or is skipped with a note.
void check_images(Setup&, Communicator*, Backend&, int threads);

// "warning: 4 of 80 images can't be read and will be skipped, the first ..."
std::string line_of_skipped(int64_t bad, int64_t images, const std::string& first);

// The union of all ranks' numbers. Collective.
std::vector<int64_t> union_of_ranks(std::vector<int64_t> numbers, Communicator*, Backend&);

}  // namespace bv

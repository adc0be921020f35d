// All ranks must be started with the same options, which another launcher doesn't ensure.
#pragma once
#include "engine/options/options.h"
#include "kernels/backend.h"

namespace bv {

// Throws UserError on a rank whose options, as written to config.json, differ from rank 0's, naming
// the first that differs. Every rank calls it with resolved options; `host_comm` takes host memory.
void require_same_options(Communicator& host_comm, const Options&);

}  // namespace bv

// All ranks of a run are to be started alike; another launcher than ours may not see to that.
#pragma once
#include "engine/options/options.h"
#include "kernels/backend.h"

namespace bv {

// Throws UserError on a rank whose options, as config.json holds them, aren't rank 0's, naming the
// first that differs. Every rank calls it with resolved options; `hosts` works on host memory.
void require_same_options(Communicator& hosts, const Options&);

}  // namespace bv

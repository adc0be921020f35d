// Refuses ranks that were started differently.
#pragma once
#include <cstdint>

#include "comm/communicator.h"
#include "comm/processes/world.h"
#include "engine/options/options.h"

namespace bv {

// Called by all. Throws UserError on every rank if the config.json of one, or the step it resumes
// from, would differ from rank 0's, naming the first difference: another launcher may start ranks
// with different options, and a folder may change while they look at it.
void require_same_options(Communicator& hosts, const Options& resolved, int64_t resumed_step = 0,
                          const World& = {});

}  // namespace bv

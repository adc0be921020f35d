// Refuses ranks that were started with different options.
#pragma once
#include <cstdint>

#include "comm/communicator.h"
#include "comm/processes/world.h"
#include "engine/options/options.h"

namespace bv {

// Called by all ranks. Throws UserError on every rank if one rank's config.json, or the step it
// resumes from, differs from rank 0's, naming the first difference. (Another launcher may start
// ranks with different options, and a folder may change while ranks read it.)
void require_same_options(Communicator& hosts, const Options& resolved, int64_t resumed_step = 0,
                          const World& = {});

}  // namespace bv

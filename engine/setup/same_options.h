// Refuses ranks that were started with different options.
#pragma once
#include <cstdint>

#include "comm/communicator.h"
#include "comm/processes/world.h"
#include "engine/options/options.h"

namespace bv {

// Facts besides the options that must be the same on all ranks.
struct StartFacts {
  int64_t resumed_step = 0;
  uint64_t data = 0;  // its fingerprint
};

// Called by all ranks. Throws UserError on every rank, naming the first difference, if one rank's
// program version, config.json, data or resumed step differs from rank 0's. (Another launcher may
// start ranks with different options, a folder may change while ranks read it, and a node may have
// been changed before it rejoins a run.)
void require_same_options(Communicator& hosts, const Options& resolved, const StartFacts& = {},
                          const World& = {});

}  // namespace bv

// The launchers of a run on several machines meet before each start, so that no process starts
// while one of the attempt before still runs, and agree on the restart.
#pragma once
#include "comm/processes/launch.h"
#include "comm/processes/restart.h"

namespace bv {

// Returns what node 0 has chosen from all: an end for good if one has failed so or all have ended
// well, else the restart with the highest number, and the end that was seen at first hand. If a
// launcher doesn't come, throws UserError at the first start, RunError at a later one, where it may
// take ten times as long, to be started again.
Restart meet_launchers(const Launch&, const Restart& own);

}  // namespace bv

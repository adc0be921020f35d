// Checks that every communicator must pass, on any device and with any number of ranks.
#pragma once
#include "comm/communicator.h"
#include "kernels/backend.h"

namespace bv::test {

// Whether collectives of several communicators may be in flight in another order on each rank.
enum class Side { by_side, one_after_another };

// Collective. 0, or 1 after a line on stderr that names what is wrong.
int check_communicator(Communicator&, Backend&, Side);

}  // namespace bv::test

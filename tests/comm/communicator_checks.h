// Checks that every communicator must pass, on any device and with any number of ranks.
#pragma once
#include "comm/communicator.h"
#include "kernels/backend.h"

namespace bv::test {

// Whether the ranks may issue the collectives of several communicators in different orders.
enum class Side { by_side, one_after_another };

// Collective. Returns 0, or 1 after printing on stderr what is wrong.
int check_communicator(Communicator&, Backend&, Side);

}  // namespace bv::test

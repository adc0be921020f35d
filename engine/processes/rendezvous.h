// How processes that another launcher started find each other.
#pragma once
#include <vector>

#include "engine/processes/world.h"
#include "kernels/comm/socket.h"

namespace bv {

// Rank 0 creates the shared memory (kernels/comm/shared_region.h) and passes it to the others once
// all have come. Returns its file descriptor, which stays open. Throws UserError if a peer doesn't
// come within `timeout` seconds.
int meet_peers(const World&, double timeout);

// The same on several machines: rank 0 listens at port World::port + 1 of World::host. Returns, on
// rank 0, a connection per rank, indexed by rank; elsewhere one to rank 0.
std::vector<Socket> meet_over_network(const World&, double timeout);

}  // namespace bv

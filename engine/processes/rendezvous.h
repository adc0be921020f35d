// How processes that another launcher started find each other.
#pragma once
#include <vector>

#include "engine/processes/world.h"
#include "kernels/comm/socket.h"

namespace bv {

// Returns the descriptor of a SharedRegion that rank 0 creates and passes on once all have come.
// Throws UserError if a peer doesn't come within `timeout` seconds.
int meet_peers(const World&, double timeout);

// The same on several machines: rank 0 listens at port World::port + 1 of World::host. Returns, on
// rank 0, a connection per rank, indexed by rank; elsewhere one to rank 0.
std::vector<Socket> meet_over_network(const World&, double timeout);

}  // namespace bv

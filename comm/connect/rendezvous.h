// How processes that another launcher started find each other.
#pragma once
#include <string>
#include <vector>

#include "comm/net/socket.h"
#include "comm/processes/world.h"

namespace bv {

// Returns the descriptor of a SharedRegion that rank 0 creates, for region_size ranks or for those
// that meet, and passes on once all have come. Throws UserError if a peer doesn't come within
// `timeout` seconds.
int meet_peers(const World&, double timeout, int region_size = 0);

// The same on several machines: rank 0 listens at World::meeting_port() of World::host. Returns, on
// rank 0, a connection per rank, indexed by rank; elsewhere one to rank 0.
std::vector<Socket> meet_over_network(const World&, double timeout);

// A connection between every two ranks, by rank: each listens at its own address of these and
// connects to all ranks below it.
std::vector<Socket> meet_pairwise(const World&, Socket listener,
                                  const std::vector<std::string>& addresses,
                                  const std::vector<int>& ports, double timeout);

}  // namespace bv

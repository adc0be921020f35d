// Connects processes that another launcher started, and the launchers of several machines.
#pragma once
#include <string>
#include <vector>

#include "base/error.h"
#include "comm/net/socket.h"
#include "comm/processes/world.h"

namespace bv {

// A meeting is complete once all `expected` ranks have connected, or once `least` or more ranks
// have, including rank 0, and no further rank does for `last_call` seconds or until the timeout.
struct Quorum {
  std::vector<int> expected;
  int least = 0;
  double last_call = 0;
};

// Too few ranks have connected in time, or rank 0 wasn't reached.
struct RanksMissing : UserError {
  using UserError::UserError;
};

// Rank 0's process ended before all ranks had connected.
struct Rank0Ended : RanksMissing {
  using RanksMissing::RanksMissing;
};

// The launchers' run has begun without this one.
struct RunIsTraining : UserError {
  using UserError::UserError;
};

// Returns the descriptor of a SharedRegion for region_size ranks (0: as many as connect), which
// rank 0 creates and passes on once all have connected. Throws RanksMissing if a peer doesn't
// connect within `timeout` seconds.
int meet_peers(const World&, double timeout, int region_size = 0);

// The same on several machines: rank 0 listens at World::meeting_port() of World::host. Returns, on
// rank 0, a connection per rank, indexed by rank; elsewhere one to rank 0.
// With a quorum on rank 0, a rank that hasn't connected has an empty socket.
std::vector<Socket> meet_over_network(const World&, double timeout, const Quorum* = nullptr);

// Connects every two ranks; returns the sockets by rank. Each rank listens at its own address in
// the list and connects to all ranks below it.
std::vector<Socket> meet_pairwise(const World&, Socket listener,
                                  const std::vector<std::string>& addresses,
                                  const std::vector<int>& ports, double timeout);

}  // namespace bv

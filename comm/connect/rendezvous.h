// How processes that another launcher started find each other, and launchers on several machines.
#pragma once
#include <string>
#include <vector>

#include "base/error.h"
#include "comm/net/socket.h"
#include "comm/processes/world.h"

namespace bv {

// How many ranks are enough for a meeting.
struct Quorum {
  std::vector<int> expected;  // once all these have come, or ...
  int least = 0;              // ... as many, rank 0 included, and none for `last_call` seconds
  double last_call = 0;
};

// Not all have come in time, or rank 0 has not.
struct RanksMissing : UserError {
  using UserError::UserError;
};

// Rank 0 was there, and its process ended before all had come.
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
// With a quorum on rank 0, those who haven't come have none.
std::vector<Socket> meet_over_network(const World&, double timeout, const Quorum* = nullptr);

// Connects every two ranks; returns the sockets by rank. Each rank listens at its own address in
// the list and connects to all ranks below it.
std::vector<Socket> meet_pairwise(const World&, Socket listener,
                                  const std::vector<std::string>& addresses,
                                  const std::vector<int>& ports, double timeout);

}  // namespace bv

// The ranks of a run on several machines (nodes): their placement, and the connections between
// them.
#pragma once
#include <memory>
#include <optional>

#include "comm/net/tcp_communicator.h"
#include "comm/processes/world.h"

namespace bv {

// Connects all ranks to rank 0 and returns their communicator over these connections; fills
// World::shared_fd and World::seats. Throws UserError if a peer doesn't connect within `timeout`
// seconds.
std::unique_ptr<HostsCommunicator> connect_machines(World&, double timeout);

// Resolves --all-reduce (nullopt: auto) for this run. Throws UserError if two levels are requested
// for nodes with different numbers of ranks.
AllReduce choose_all_reduce(std::optional<AllReduce> asked, const World&, bool on_cpu);

struct DataLinks {
  size_t bucket_bytes;
  double timeout;
  bool two_level;  // 2d
};
// Collectives on host memory: rings of TCP connections between all ranks; with two_level, an
// all-reduce goes through the node's shared memory, between the nodes, and through it again.
std::unique_ptr<Communicator> connect_data(const World&, std::unique_ptr<Communicator> hosts,
                                           RunWatch&, const DataLinks&);

// A two-level communicator over groups of `whole`.
std::unique_ptr<Communicator> make_two_level(const World&, std::unique_ptr<Communicator> whole);

}  // namespace bv

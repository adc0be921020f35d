// Collectives between the hosts of several machines, for few and small things: what the ranks' GPUs
// exchange is NCCL's business. Everything goes by way of rank 0.
//
// Each rank has a board of its own (SharedRegion, of this process alone) on which a thread keeps
// what the others tell of themselves: heartbeats, whether they are busy. PeerWatch reads it as it
// reads the one that ranks of one machine share.
#pragma once
#include <memory>
#include <vector>

#include "kernels/backend.h"
#include "kernels/comm/rank_barrier.h"
#include "kernels/comm/socket.h"

namespace bv {

// sockets: of rank 0 one with each rank in its place, of the others one with rank 0.
// region: this process's own, for all ranks; stays the caller's. A peer that dies or lets the others
// wait for more than place.timeout ends the process with a line that says so. Collectives are called
// by one thread; streams have no meaning.
std::unique_ptr<Communicator> make_tcp_communicator(const RankPlace& place,
                                                    std::vector<Socket> sockets, int region_fd);

}  // namespace bv

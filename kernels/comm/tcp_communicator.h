// Collectives between the hosts of several machines, for few and small messages: NCCL carries what
// the ranks' GPUs exchange. Everything passes through rank 0: there are no groups and no exchange.
// Each rank has a SharedRegion of its own, in which a thread keeps what the others report, for
// PeerWatch to read.
#pragma once
#include <memory>
#include <vector>

#include "kernels/backend.h"
#include "kernels/comm/rank_barrier.h"
#include "kernels/comm/socket.h"

namespace bv {

// sockets: for rank 0, one to each rank, by rank; for the others, one to rank 0. region_fd: of this
// process's own region; stays the caller's. A peer that dies or exceeds place.timeout ends the
// process with a line that says so. Collectives are called from one thread; streams are ignored.
std::unique_ptr<Communicator> make_tcp_communicator(const RankPlace& place,
                                                    std::vector<Socket> sockets, int region_fd);

}  // namespace bv

// Collectives between the hosts of several machines, for a few small messages; NCCL, or on the
// cpu device a Mesh, carries the data. Everything passes through rank 0; there are no groups and no
// exchange. A thread writes the other ranks' reports into a SharedRegion of the machine, which has
// a place for each rank of the run; every waiting process reads them there.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "comm/local/rank_barrier.h"
#include "comm/net/socket.h"

namespace bv {

class HostsCommunicator : public Communicator, public RunWatch {
 public:
  using Communicator::Communicator;
  struct Rank {
    std::string name;
    bool here;  // on this machine
  };
  virtual void introduce(std::vector<Rank> by_rank) = 0;
};

// sockets: on rank 0, one per rank, by rank; on the others, one to rank 0. region_fd: shared with
// the machine's other ranks, or private; the caller keeps it. If a peer dies or exceeds
// place.timeout, ends the process; one process per machine prints the reason. Collectives must be
// called from one thread; streams are ignored.
std::unique_ptr<HostsCommunicator> make_tcp_communicator(const RankPlace& place,
                                                         std::vector<Socket> sockets,
                                                         int region_fd);

}  // namespace bv

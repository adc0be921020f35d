// Collectives between the hosts of several machines, for few and small messages: NCCL, or on the
// cpu device a Mesh, carries the data. Everything passes through rank 0: there are no groups and no
// exchange. A thread keeps what the other ranks report in a SharedRegion of the machine, with a
// place for each rank of the run, where every waiting process reads it.
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

// sockets: for rank 0, one to each rank, by rank; for the others, one to rank 0. region_fd: shared
// with the machine's other ranks or this process's own; stays the caller's. A peer that dies or
// exceeds place.timeout ends the process with a line that says so, one on each machine. Collectives
// are called from one thread; streams are ignored.
std::unique_ptr<HostsCommunicator> make_tcp_communicator(const RankPlace& place,
                                                         std::vector<Socket> sockets,
                                                         int region_fd);

}  // namespace bv

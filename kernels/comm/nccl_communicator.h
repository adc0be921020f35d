// Collectives between GPUs by NCCL, in its two builds.
#pragma once
#include <memory>

#include "kernels/backend.h"
#include "kernels/comm/rank_barrier.h"

namespace bv {

struct NcclPeers {
  RankPlace place;
  int fd;  // of the SharedRegion of this machine's ranks; stays the caller's
  // Of the same ranks, for the hosts: barriers, and the id by which NCCL's ranks find each other.
  std::unique_ptr<Communicator> hosts;
};

}  // namespace bv

namespace bv::cuda_gpu {
// Takes part in a collective start: every rank calls it. Throws std::runtime_error.
std::unique_ptr<Communicator> make_nccl_communicator(Backend&, NcclPeers);
}  // namespace bv::cuda_gpu
namespace bv::simt_gpu {
std::unique_ptr<Communicator> make_nccl_communicator(Backend&, NcclPeers);
}

// Collectives between GPUs by NCCL, in two builds: for CUDA and for its stand-in.
#pragma once
#include <memory>

#include "comm/communicator.h"
#include "comm/local/rank_barrier.h"
#include "kernels/backend.h"

namespace bv {

struct NcclPeers {
  RankPlace place;
  int fd;  // of this machine's SharedRegion; the caller keeps it
  // The same ranks on host memory: for barriers, and to broadcast NCCL's unique id.
  std::unique_ptr<Communicator> host_comm;
};

}  // namespace bv

namespace bv::cuda_gpu {
// Collective: every rank calls it. Throws std::runtime_error.
std::unique_ptr<Communicator> make_nccl_communicator(Backend&, NcclPeers);
}  // namespace bv::cuda_gpu
namespace bv::simt_gpu {
std::unique_ptr<Communicator> make_nccl_communicator(Backend&, NcclPeers);
}

// Collectives through host memory, for ranks that share a GPU, which NCCL refuses. Slow; meant for
// trying a run of several processes on one GPU. A device may run host functions of only one stream
// at a time, so a staged communicator and its groups run their collectives one after another, in
// call order, whatever their streams.
#pragma once
#include <memory>

#include "comm/communicator.h"
#include "kernels/backend.h"

namespace bv {

// host_comm: a communicator of the same ranks on host memory.
std::unique_ptr<Communicator> make_staged_communicator(Backend&,
                                                       std::unique_ptr<Communicator> host_comm);

}  // namespace bv

// Collectives for ranks that share a GPU, which NCCL refuses: through host memory. Slow; for trying
// a run of several processes on one GPU. A device may call its host for one stream at a time, so a
// staged communicator and its groups run their collectives one after another, in the order of the
// calls, whatever their streams.
#pragma once
#include <memory>

#include "comm/communicator.h"
#include "kernels/backend.h"

namespace bv {

// host_comm works on host memory, for the same ranks.
std::unique_ptr<Communicator> make_staged_communicator(Backend&,
                                                       std::unique_ptr<Communicator> host_comm);

}  // namespace bv

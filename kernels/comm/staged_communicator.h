// Collectives for ranks that share a GPU, which NCCL refuses: through host memory that the
// processes share. Slow; for trying a run of several processes where there is one GPU.
#pragma once
#include <memory>

#include "kernels/backend.h"

namespace bv {

// `hosts` sums up host memory over the same ranks.
std::unique_ptr<Communicator> make_staged_communicator(Backend&,
                                                       std::unique_ptr<Communicator> hosts);

}  // namespace bv

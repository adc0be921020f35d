// The communicator of each kind of device.
#pragma once
#include <memory>

#include "comm/communicator.h"
#include "comm/nccl/nccl_communicator.h"
#include "kernels/devices/devices.h"

namespace bv {

// Collectives between the ranks' devices; `staged`: through host memory, for ranks that share a
// GPU. On a GPU, sets this rank to Busy::starting. Throws std::runtime_error if NCCL is needed but
// this program was built without it.
std::unique_ptr<Communicator> make_communicator(DeviceKind, Backend&, NcclPeers, bool staged);

}  // namespace bv

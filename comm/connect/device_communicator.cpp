#include "comm/connect/device_communicator.h"

#include <cstdlib>
#include <stdexcept>
#include <utility>

#include "comm/staged_communicator.h"

namespace bv {
namespace {

// On a GPU newer than this program, the driver compiles each kernel at its first use, and NCCL is
// slow to start on many machines. The stand-in starts slowly only if a test asks for it.
bool starts_slowly(DeviceKind kind) {
  return kind == DeviceKind::cuda || std::getenv("SIMT_STARTS_SLOWLY");
}

}  // namespace

std::unique_ptr<Communicator> make_communicator(DeviceKind kind, Backend& backend, NcclPeers peers,
                                                bool staged) {
  if (kind == DeviceKind::cpu) return std::move(peers.host_comm);
  if (starts_slowly(kind)) peers.host_comm->busy(Busy::starting);
  if (staged) return make_staged_communicator(backend, std::move(peers.host_comm));
#ifdef BAREVISION_SIMT
  if (kind == DeviceKind::simt) return simt_gpu::make_nccl_communicator(backend, std::move(peers));
#endif
#ifdef BAREVISION_NCCL
  if (kind == DeviceKind::cuda) return cuda_gpu::make_nccl_communicator(backend, std::move(peers));
#endif
  throw std::runtime_error(
      "several processes on GPUs need NCCL, which this program was built without");
}

}  // namespace bv

#include "kernels/devices/devices.h"

#include <cstdlib>
#include <stdexcept>
#include <utility>

#include "comm/staged_communicator.h"
#include "kernels/cpu/backend.h"
#include "kernels/cuda/backend.h"

namespace bv {

namespace {

// On a chip newer than this program, a GPU's driver compiles each kernel at its first use; NCCL on
// many machines takes its time. On the stand-in only where a test asks for it.
bool starts_slowly(DeviceKind kind) {
  return kind == DeviceKind::cuda || std::getenv("SIMT_STARTS_SLOWLY");
}

}  // namespace

bool is_built(DeviceKind kind) {
#ifdef BAREVISION_SIMT
  if (kind == DeviceKind::simt) return true;
#endif
#ifdef BAREVISION_CUDA
  if (kind == DeviceKind::cuda) return true;
#endif
  return kind == DeviceKind::cpu;
}

int gpu_count([[maybe_unused]] std::string* why_none) {
#ifdef BAREVISION_CUDA
  return cuda_gpu::device_count(why_none);
#else
  if (why_none) *why_none = "built without CUDA";
  return 0;
#endif
}

std::unique_ptr<Backend> make_backend(DeviceKind kind, const BackendOptions& o) {
  if (kind == DeviceKind::cpu) return make_cpu_backend(o.threads, o.overlap);
#ifdef BAREVISION_SIMT
  if (kind == DeviceKind::simt)
    return simt_gpu::make_backend({.device = 0, .graphs = o.graphs, .cudnn = o.cudnn});
#endif
#ifdef BAREVISION_CUDA
  if (kind == DeviceKind::cuda)
    return cuda_gpu::make_backend({.device = o.index, .graphs = o.graphs, .cudnn = o.cudnn});
#endif
  throw std::invalid_argument("this device was not built in");
}

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

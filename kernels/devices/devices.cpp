#include "kernels/devices/devices.h"

#include <stdexcept>

#include "kernels/cpu/backend.h"
#include "kernels/cuda/backend.h"

namespace bv {

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
    return simt_gpu::make_backend({.device = 0, .graphs = o.graphs, .kernels = o.kernels});
#endif
#ifdef BAREVISION_CUDA
  if (kind == DeviceKind::cuda)
    return cuda_gpu::make_backend({.device = o.index, .graphs = o.graphs, .kernels = o.kernels});
#endif
  throw std::invalid_argument("this device was not built in");
}

}  // namespace bv

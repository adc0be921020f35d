#include "kernels/devices/devices.h"

#include <stdexcept>

#include "base/wait.h"
#include "kernels/cpu/backend.h"
#include "kernels/cuda/backend.h"
#ifdef BAREVISION_SIMT
#include "simt/device/control.h"
#endif

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

std::string why_no_hopper(DeviceKind kind, const HopperSupport& s) {
  const bool simt = kind == DeviceKind::simt;
  if (s.arch != 90)
    return "these kernels are made for sm_90 (H100, H200), " +
           std::string(simt ? "the stand-in" : "this GPU") + " is an sm_" + std::to_string(s.arch) +
           (simt ? "; SIMT_ARCH=sm_90 makes it one" : "; --kernels auto has its kernels");
  if (!s.compiled)
    return "this program has no code for sm_90a; run make on the machine with the GPU, or make "
           "dist";
  if (!s.makes_tensor_maps)
    return "the NVIDIA driver lacks cuTensorMapEncodeTiled; install one for CUDA 13, or give "
           "--kernels auto";
  return "";
}

std::string why_no_hopper(DeviceKind kind, [[maybe_unused]] int index) try {
#ifdef BAREVISION_SIMT
  if (kind == DeviceKind::simt) return why_no_hopper(kind, simt_gpu::hopper_support(0));
#endif
#ifdef BAREVISION_CUDA
  if (kind == DeviceKind::cuda) return why_no_hopper(kind, cuda_gpu::hopper_support(index));
#endif
  return "these kernels are made for sm_90 GPUs, this run is on the cpu; --device simt with "
         "SIMT_ARCH=sm_90 runs them without a GPU";
} catch (const std::runtime_error& e) {  // no such device
  return e.what();
}

std::unique_ptr<Backend> make_backend(DeviceKind kind, const BackendOptions& o) {
  if (kind == DeviceKind::cpu) return make_cpu_backend(o.threads, o.overlap);
#ifdef BAREVISION_SIMT
  if (kind == DeviceKind::simt) {
    on_each_tick(simt::let_queues_proceed);
    return simt_gpu::make_backend(
        {.device = 0, .graphs = o.graphs, .kernels = o.kernels, .collectives = o.collectives});
  }
#endif
#ifdef BAREVISION_CUDA
  if (kind == DeviceKind::cuda)
    return cuda_gpu::make_backend({.device = o.index,
                                   .graphs = o.graphs,
                                   .kernels = o.kernels,
                                   .collectives = o.collectives});
#endif
  throw std::invalid_argument("this device was not built in");
}

}  // namespace bv

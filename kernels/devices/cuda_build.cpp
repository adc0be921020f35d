#include "kernels/devices/cuda_build.h"

#include "kernels/cuda/backend.h"

namespace bv {

std::string cuda_build() {
#ifdef BAREVISION_CUDA
  std::string text = cuda_gpu::toolkit() + ", cuBLASLt";
  text += cuda_gpu::has_cudnn() ? ", cuDNN" : ", no cuDNN";
#ifdef BAREVISION_NCCL
  return text + ", NCCL";
#else
  return text + ", no NCCL";
#endif
#else
  return "no CUDA";
#endif
}

}  // namespace bv

// The GPU architectures for which nvcc compiles this program: nvcc lists them in a macro.
#include "kernels/cuda/backend.h"
#include "kernels/devices/cuda_build.h"

namespace bv::BAREVISION_GPU {

std::string toolkit() {
  std::string text;
#ifdef __CUDA_ARCH_LIST__
  const int version = CUDART_VERSION;  // 13020 is 13.2
  text = "CUDA " + std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
  for (const int arch : {__CUDA_ARCH_LIST__})  // 900 is sm_90
    text += (text.find("sm_") == text.npos ? " for sm_" : ", sm_") + std::to_string(arch / 10);
#endif
  return text;
}

bool has_sm90_code() {
#ifdef __CUDA_ARCH_LIST__
  for (const int built : {__CUDA_ARCH_LIST__})
    if (built == 900) return true;
  return false;
#else
  return true;
#endif
}

}  // namespace bv::BAREVISION_GPU

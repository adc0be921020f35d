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
    text += (text.find("sm_") == text.npos ? " for sm_" : ", sm_") + std::to_string(arch / 10) +
            (arch == 900 && has_sm90_code() ? "a" : "");
#endif
  return text;
}

// nvcc's macros for host code don't tell sm_90 from sm_90a, which has the instructions of Hopper's
// kernels: the Makefile does.
bool has_sm90_code() {
#if defined __CUDA_ARCH_LIST__ && !defined BAREVISION_SM_90A
  return false;
#else
  return true;
#endif
}

}  // namespace bv::BAREVISION_GPU

// Every call of the CUDA runtime is checked.
#pragma once
#include <cuda_runtime.h>

#include <stdexcept>
#include <string>

#ifndef BAREVISION_GPU
#error "compile with -DBAREVISION_GPU=cuda_gpu or simt_gpu"
#endif

namespace bv::BAREVISION_GPU {

inline void check(cudaError_t error, const std::string& what) {
  if (error != cudaSuccess) throw std::runtime_error(what + ": " + cudaGetErrorString(error));
}

// Of the current device.
inline int attribute(cudaDeviceAttr which) {
  int device = 0, value = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  check(cudaDeviceGetAttribute(&value, which, device), "cudaDeviceGetAttribute");
  return value;
}
inline int compute_capability() {  // 75, 80, 90 ...
  return 10 * attribute(cudaDevAttrComputeCapabilityMajor) +
         attribute(cudaDevAttrComputeCapabilityMinor);
}

}  // namespace bv::BAREVISION_GPU

// Every CUDA runtime call is checked. Kernels include this file, and nvcc parses its includes three
// times, so for nvcc it avoids <string>, <memory> and <stdexcept>, half of the parsing otherwise.
#pragma once
#include <cuda_runtime.h>
#ifndef __CUDACC__
#include <string>
#include <string_view>
#endif

#ifndef BAREVISION_GPU
#error "compile with -DBAREVISION_GPU=cuda_gpu or simt_gpu"
#endif

namespace bv::BAREVISION_GPU {

// Throw std::runtime_error "what: CUDA's message", or std::invalid_argument "op: what".
[[noreturn]] void fail(cudaError_t error, const char* what);
[[noreturn]] void refuse(const char* op, const char* what);
// The same for a kernel; function: a __PRETTY_FUNCTION__ with the kernel as a parameter.
[[noreturn]] void fail_kernel(cudaError_t error, const char* function);

#ifndef __CUDACC__
// "layernorm_forward<float, 8>", without its namespaces: a kernel's name in messages. Finds the
// kernel in the __PRETTY_FUNCTION__ of a template with the parameter `kernel`.
std::string name_in(std::string_view function);
template <auto kernel>
std::string kernel_name() {
  return name_in(__PRETTY_FUNCTION__);
}
#endif

inline void check(cudaError_t error, const char* what) {
  if (error != cudaSuccess) fail(error, what);
}

// An attribute of the current device.
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

// A first, immediate form of the stand-in's host side.
#include "kernels/simt/cuda_runtime.h"

namespace {
std::string last_error;
}

inline namespace simt_cuda {

const char* cudaGetErrorString(cudaError_t) { return last_error.c_str(); }
cudaError_t cudaMalloc(void** p, size_t bytes) {
  *p = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  std::memset(*p, 0xFF, bytes);
  return cudaSuccess;
}
cudaError_t cudaFree(void* p) {
  std::free(p);
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind,
                            cudaStream_t) {
  std::memcpy(to, from, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* p, int value, size_t bytes, cudaStream_t) {
  std::memset(p, value, bytes);
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  *value = attribute == cudaDevAttrMultiProcessorCount      ? 3
           : attribute == cudaDevAttrComputeCapabilityMajor ? 8
           : attribute == cudaDevAttrComputeCapabilityMinor ? 0
                                                            : 163 * 1024;
  return cudaSuccess;
}

}  // namespace simt_cuda

namespace simt {
cudaError_t launch(Launch l, cudaStream_t) {
  try {
    run(l);
    return cudaSuccess;
  } catch (const std::exception& e) {
    last_error = e.what();
    return cudaErrorLaunchFailure;
  }
}
}  // namespace simt

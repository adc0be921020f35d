// CUDA's runtime for g++.
#pragma once
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "kernels/simt/intrinsics.h"
#include "kernels/simt/launch.h"
#include "kernels/simt/types.h"

inline namespace simt_cuda {

using cudaStream_t = struct SimtStream*;
enum cudaError_t { cudaSuccess = 0, cudaErrorMemoryAllocation = 2, cudaErrorLaunchFailure = 719 };
enum cudaDeviceAttr {
  cudaDevAttrMultiProcessorCount = 16,
  cudaDevAttrComputeCapabilityMajor = 75,
  cudaDevAttrComputeCapabilityMinor = 76,
  cudaDevAttrMaxSharedMemoryPerBlockOptin = 97,
};
const char* cudaGetErrorString(cudaError_t);
cudaError_t cudaMalloc(void** p, size_t bytes);
cudaError_t cudaFree(void* p);
enum cudaMemcpyKind {
  cudaMemcpyHostToDevice = 1,
  cudaMemcpyDeviceToHost = 2,
  cudaMemcpyDeviceToDevice = 3
};
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind, cudaStream_t);
cudaError_t cudaMemsetAsync(void* p, int value, size_t bytes, cudaStream_t);
cudaError_t cudaStreamSynchronize(cudaStream_t);
cudaError_t cudaGetDevice(int* device);
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int device);

}  // namespace simt_cuda

namespace simt {
cudaError_t launch(Launch, cudaStream_t);
}

// Helpers of the plain kernels (--kernels plain), with which each NAME.cu starts. A thread computes
// one output by the formula in kernels.h.
#pragma once
#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/pack.cuh"

namespace bv::BAREVISION_GPU {

template <class T>
__device__ T* as(void* p) {
  return static_cast<T*>(p);
}
template <class T>
__device__ const T* as(const void* p) {
  return static_cast<const T*>(p);
}

// This thread's number in the grid. Every plain kernel calls this first, since it also waits.
__device__ inline size_t thread_number() {
  await_kernel_ahead();
  return size_t(blockIdx.x) * blockDim.x + threadIdx.x;
}

// Overwrites a gradient or adds to it.
__device__ inline void set_or_add(float& gradient, float x, bool accumulate) {
  gradient = accumulate ? gradient + x : x;
}

// Launches a thread for each output, in blocks of 256; the last block may have idle threads.
template <auto kernel, class... Args>
void launch_each(size_t outputs, cudaStream_t stream, const Args&... args) {
  constexpr unsigned threads = 256;
  launch<kernel>(unsigned(ceil_div(outputs, size_t{threads})), threads, 0, stream, args...);
}

}  // namespace bv::BAREVISION_GPU

// Names that kernels use besides CUDA's, for nvcc and for g++ (simt in the include path):
//   shared<T>()    the block's shared memory; each kernel declares one struct for all of it
//   launch<kernel>(grid, block, shared_bytes, stream, args...)    throws std::runtime_error that
//                  names the kernel and the reason
//   launch_dependent<kernel>(...)    the same on sm_90: it may begin before the kernel ahead of it
//                  in the stream, or in the graph captured from it, has ended, and calls
//                  griddepcontrol_wait (ptx_sm90.cuh) before it touches what that one uses
// All device code lives in namespace bv::BAREVISION_GPU, so that both builds fit into one program.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstddef>
#include <type_traits>

#include "kernels/cuda/check.h"
#ifndef __CUDACC__
#include "kernels/cuda/kernel_name.h"
#endif

namespace bv::BAREVISION_GPU {

template <auto kernel>
void check_kernel(cudaError_t error) {
  if (error != cudaSuccess) fail_kernel(error, __PRETTY_FUNCTION__);
}

// Above 48 KiB a kernel must opt in. The limit is part of the kernel's state, so it is raised to
// the chip's maximum: a smaller launch must not lower it below what a captured launch needs.
template <auto kernel>
void raise_shared_limit() {
  check_kernel<kernel>(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                            attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin)));
}

#ifdef __CUDACC__
template <class T>
__device__ T& shared() {
  static_assert(std::is_trivially_default_constructible_v<T>, "shared memory isn't constructed");
  extern __shared__ __align__(1024) unsigned char dynamic_shared[];
  return *reinterpret_cast<T*>(dynamic_shared);
}

template <auto kernel, class... Args>
void launch(dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t stream, const Args&... args) {
  if (shared_bytes > 48 * 1024) raise_shared_limit<kernel>();
  const cudaLaunchConfig_t config{grid, block, shared_bytes, stream, nullptr, 0};
  check_kernel<kernel>(cudaLaunchKernelEx(&config, kernel, args...));
}

template <auto kernel, class... Args>
void launch_dependent(dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t stream,
                      const Args&... args) {
  if (shared_bytes > 48 * 1024) raise_shared_limit<kernel>();
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  const cudaLaunchConfig_t config{grid, block, shared_bytes, stream, &early, 1};
  check_kernel<kernel>(cudaLaunchKernelEx(&config, kernel, args...));
}
#else
using ::shared;

template <auto kernel, class... Args>
void enqueue(bool dependent, dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t stream,
             const Args&... args) {
  if (shared_bytes > 48 * 1024) raise_shared_limit<kernel>();
  (check_kernel<kernel>(::simt::check_argument(args)), ...);
  check_kernel<kernel>(::simt::launch({.name = kernel_name<kernel>(),
                                       .grid = grid,
                                       .block = block,
                                       .shared_bytes = shared_bytes,
                                       .body = [=] { kernel(args...); },
                                       .function = reinterpret_cast<const void*>(kernel),
                                       .dependent = dependent},
                                      stream));
}
template <auto kernel, class... Args>
void launch(dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t stream, const Args&... args) {
  enqueue<kernel>(false, grid, block, shared_bytes, stream, args...);
}
template <auto kernel, class... Args>
void launch_dependent(dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t stream,
                      const Args&... args) {
  enqueue<kernel>(true, grid, block, shared_bytes, stream, args...);
}
#endif

}  // namespace bv::BAREVISION_GPU

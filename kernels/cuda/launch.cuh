// Names that kernels use besides CUDA's, for nvcc and for g++ (simt in the include path):
//   shared<T>()    the block's shared memory; each kernel declares one struct for all of it
//   launch<kernel>(grid, block, shared_bytes, stream, args...)    throws std::runtime_error that
//                  names the kernel and the reason
//   launch_dependent<kernel>(...)    the same, but on sm_90 a programmatic dependent launch: the
//                  kernel may begin before the kernel ahead of it in the stream, or in the graph
//                  captured from the stream, has ended; it waits for this end before it accesses
//                  what that kernel uses (launch() in a DependentLaunches(true) scope does this)
//   await_kernel_ahead()    waits for this end; every kernel begins with it, in all its threads
// All device code lives in namespace bv::BAREVISION_GPU, so that both builds fit into one program.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstddef>
#include <type_traits>

#include "kernels/cuda/check.h"
#include "kernels/cuda/dependent_launches.h"
#ifndef __CUDACC__
#include "simt/hopper/instructions.h"
#endif

namespace bv::BAREVISION_GPU {

// ---- griddepcontrol (sm_90) -------------------------------------------------------------------
// _wait: waits until the kernel ahead has ended and its writes are visible; before this, a kernel
// must neither read what the kernel ahead writes nor write what it uses. _launch_dependents: the
// next kernel may begin once all blocks have called this or ended. Older GPUs have no dependent
// launches; after an ordinary launch the wait returns at once.
#ifdef __CUDACC__
__device__ inline void griddepcontrol_wait() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
__device__ inline void griddepcontrol_launch_dependents() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}
// Allows the next kernel to begin only after the wait, so that a kernel ends after all kernels
// ahead of it, and at most one kernel per stream waits on the device.
__device__ inline void await_kernel_ahead() {
  griddepcontrol_wait();
  griddepcontrol_launch_dependents();
}
#else
inline void griddepcontrol_wait(::simt::Site site = ::simt::Site::current()) {
  ::simt::grid_dependency_wait(site);
}
inline void griddepcontrol_launch_dependents() {}
inline void await_kernel_ahead(::simt::Site site = ::simt::Site::current()) {
  griddepcontrol_wait(site);
}
#endif

// ---- Launches ---------------------------------------------------------------------------------
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

// `dependent` requires that the build has code for sm_90 (has_sm90_code()), in which kernels wait.
template <auto kernel, class... Args>
void enqueue(bool dependent, dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t stream,
             const Args&... args) {
  if (shared_bytes > 48 * 1024) raise_shared_limit<kernel>();
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  const cudaLaunchConfig_t config{grid, block, shared_bytes, stream, &early, dependent ? 1u : 0u};
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
#endif

template <auto kernel, class... Args>
void launch(dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t stream, const Args&... args) {
  enqueue<kernel>(DependentLaunches::now(), grid, block, shared_bytes, stream, args...);
}
template <auto kernel, class... Args>
void launch_dependent(dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t stream,
                      const Args&... args) {
  enqueue<kernel>(true, grid, block, shared_bytes, stream, args...);
}

}  // namespace bv::BAREVISION_GPU

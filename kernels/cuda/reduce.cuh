// Sums and maxima over a warp and a block, always in the same order.
#pragma once
#include "kernels/cuda/launch.cuh"

namespace bv::BAREVISION_GPU {

constexpr int warp_size = 32;

// Over each group of `lanes` neighbouring lanes (a power of two); every lane gets the result.
template <int lanes = warp_size, class T>
__device__ T warp_sum(T x) {
  for (int bits = lanes / 2; bits; bits /= 2) x += __shfl_xor_sync(~0u, x, bits);
  return x;
}
template <int lanes = warp_size>
__device__ float warp_max(float x) {
  for (int bits = lanes / 2; bits; bits /= 2) x = fmaxf(x, __shfl_xor_sync(~0u, x, bits));
  return x;
}

// Over a block of `threads`; every thread gets the result. `scratch` [threads / 32], in shared
// memory, is free again after the caller's next barrier.
template <int threads, class T>
__device__ T block_sum(T x, T* scratch) {
  static_assert(threads % warp_size == 0);
  x = warp_sum(x);
  if (threadIdx.x % warp_size == 0) scratch[threadIdx.x / warp_size] = x;
  __syncthreads();
  T sum = scratch[0];
  for (int w = 1; w < threads / warp_size; ++w) sum += scratch[w];
  return sum;
}

}  // namespace bv::BAREVISION_GPU

// Shared by the rungs in CUDA: problem sizes, timing on a GPU, conversion to and from 16 bits.
// All other CUDA code is in the rungs.
#pragma once
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "learn/rung.h"

namespace learn {

// Size of the dimension that the work is proportional to: `large` on a GPU, `small` on the
// stand-in, whose counts are then multiplied by large / small.
inline int size(int small, int large) {
#ifdef __CUDACC__
  (void)small;
  return large;
#else
  enlarged = double(large) / small;
  return small;
#endif
}

inline float value(__nv_bfloat16 x) { return __bfloat162float(x); }
inline std::vector<__nv_bfloat16> rounded(const std::vector<float>& numbers) {
  std::vector<__nv_bfloat16> all(numbers.size());
  for (size_t i = 0; i < all.size(); ++i) all[i] = __float2bfloat16(numbers[i]);
  return all;
}
inline const std::vector<float>& widened(const std::vector<float>& numbers) { return numbers; }
inline std::vector<float> widened(const std::vector<__nv_bfloat16>& numbers) {
  std::vector<float> all(numbers.size());
  for (size_t i = 0; i < all.size(); ++i) all[i] = value(numbers[i]);
  return all;
}

// On a GPU, times 20 calls of `launches`, which launches the rung's kernels; else does nothing.
template <class Launches>
void time([[maybe_unused]] Launches launches) {
#ifdef __CUDACC__
  constexpr int times = 20;
  cudaEvent_t begin, end;
  cudaEventCreate(&begin);
  cudaEventCreate(&end);
  cudaEventRecord(begin);
  for (int i = 0; i < times; ++i) launches();
  cudaEventRecord(end);
  cudaEventSynchronize(end);
  cudaEventElapsedTime(&microseconds, begin, end);
  microseconds *= 1000.f / times;
#endif
}
template <class Launches>
void run(Launches launches) {
  launches();
  time(launches);
}

// compare() for results of kernels; if one has failed, prints its error instead.
template <class T, class Expected>
int finish(const Rung& rung, const std::vector<T>& got, double tolerance, Expected expected) {
  if (const cudaError_t error = cudaDeviceSynchronize(); error != cudaSuccess) {
    std::printf("%s: %s\n", rung.name, cudaGetErrorString(error));
    return 1;
  }
  return compare(rung, widened(got), tolerance, expected);
}

}  // namespace learn

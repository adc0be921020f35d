// Shared by the exercises: arrays on the GPU, and the search for what is wrong.
#pragma once
#include <cuda_runtime.h>

#include <algorithm>

#include "learn/rung.h"
#ifndef __CUDACC__
#include "simt/races/block_work.h"
#endif

namespace learn {

// An array on the GPU. On the stand-in it is NaN until it is written.
template <class T>
struct OnGpu {
  T* data = nullptr;
  size_t size;

  explicit OnGpu(size_t count) : size(count) { cudaMalloc(&data, count * sizeof(T)); }
  explicit OnGpu(const std::vector<T>& host) : OnGpu(host.size()) {
    cudaMemcpy(data, host.data(), size * sizeof(T), cudaMemcpyHostToDevice);
  }
  OnGpu(const OnGpu&) = delete;
  ~OnGpu() { cudaFree(data); }
  // Waits for the kernels. If one has failed, prints its error and exits.
  std::vector<T> to_host() const {
    std::vector<T> host(size);
    const cudaError_t error =
        cudaMemcpy(host.data(), data, size * sizeof(T), cudaMemcpyDeviceToHost);
    if (error != cudaSuccess) {
      std::printf("%s\n", cudaGetErrorString(error));
      std::exit(1);
    }
    return host;
  }
};

// Index of the first element that isn't within the tolerance of expected(i); got.size(): all are.
template <class T, class Expected>
size_t first_wrong(const std::vector<T>& got, double tolerance, Expected expected) {
  for (size_t i = 0; i < got.size(); ++i)
    if (!(std::fabs(double(got[i]) - expected(i)) <= tolerance)) return i;  // NaN is wrong, too
  return got.size();
}

// Whether the last block's threads worked in parallel: no thread made more than `accesses` accesses
// to memory, and the block had at most `barriers` barriers. If not, prints the reason. The stand-in
// counts both; on a GPU only the time would show it.
inline bool work_together([[maybe_unused]] size_t accesses, [[maybe_unused]] size_t barriers) {
#ifndef __CUDACC__
  const simt::BlockWork& work = simt::last_block_work;
  const auto& all = work.accesses;
  if (all.empty()) return true;  // in gdb
  const auto busiest = std::max_element(all.begin(), all.end());
  const auto idlest = std::min_element(all.begin(), all.end());
  if (*busiest > accesses) {
    std::printf("but thread %td reads or writes memory %zu times, thread %td only %zu times:\n",
                busiest - all.begin(), *busiest, idlest - all.begin(), *idlest);
    std::printf("one works while the others wait\n");
    return false;
  }
  if (work.barriers > barriers) {
    std::printf("but after %zu barriers: the threads work one after another,\n", work.barriers);
    std::printf("and at each barrier all wait for the one whose turn it is\n");
    return false;
  }
#endif
  return true;
}

// For printing: NaN without a sign.
inline double shown(float x) { return std::isnan(x) ? NAN : double(x); }

}  // namespace learn

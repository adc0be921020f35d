// Shared by the exercises: arrays on the GPU, and the search for what is wrong.
#pragma once
#include <cuda_runtime.h>

#include "learn/rung.h"

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
  // Waits for the kernels. If one has failed, ends the program with its message.
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

// Index of the first element that isn't expected(i) within the tolerance; got.size(): all are.
template <class T, class Expected>
size_t first_wrong(const std::vector<T>& got, double tolerance, Expected expected) {
  for (size_t i = 0; i < got.size(); ++i)
    if (!(std::fabs(double(got[i]) - expected(i)) <= tolerance)) return i;  // NaN is wrong, too
  return got.size();
}

// For printing: NaN without a sign.
inline double shown(float x) { return std::isnan(x) ? NAN : double(x); }

}  // namespace learn

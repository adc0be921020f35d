// Included ahead of a .cu file that `make try` compiles: what cuda_to_cpp turns CUDA's syntax into.
#pragma once
#include <cuda_runtime.h>

#include <type_traits>

namespace simt {

// A launch that its program has asked for; at exit, one that never ran is named.
struct Asked {
  const char* kernel = nullptr;
  Site site{};
  std::atomic<bool> ran = false;
};
Asked& ask(const char* kernel, Site);  // lives as long as the program

// kernel<<<grid, block, shared_bytes, stream>>>(args...): Launcher(SIMT_KERNEL(kernel), ...)(args...).
#define SIMT_KERNEL(...) \
#__VA_ARGS__, [=](const auto&... simt_arguments) { __VA_ARGS__(simt_arguments...); }
template <class Call>
class Launcher {
 public:
  Launcher(const char* kernel, Call call, dim3 grid, dim3 block, size_t shared_bytes = 0,
           cudaStream_t stream = nullptr, Site site = Site::current())
      : kernel_(kernel),
        call_(call),
        grid_(grid),
        block_(block),
        shared_bytes_(shared_bytes),
        stream_(stream),
        site_(site) {}

  // As on a GPU: an error is kept for cudaGetLastError.
  template <class... Args>
  void operator()(const Args&... args) const {
    if (((refused(args) != cudaSuccess) || ...)) return;
    Asked& asked = ask(kernel_, site_);
    const Call call = call_;
    const cudaError_t error = launch({.name = kernel_,
                                      .grid = grid_,
                                      .block = block_,
                                      .shared_bytes = shared_bytes_,
                                      .body =
                                          [=, &asked] {
                                            asked.ran.store(true, std::memory_order_relaxed);
                                            call(args...);
                                          }},
                                     stream_);
    if (error != cudaSuccess) asked.ran = true;
  }

 private:
  template <class T>
  static cudaError_t refused(const T& argument) {
    if constexpr (std::is_pointer_v<std::decay_t<T>>) {
      const std::decay_t<T> pointer = argument;
      return check_words(&pointer, sizeof pointer);
    } else {
      return check_argument(argument);
    }
  }

  const char* kernel_;
  Call call_;
  dim3 grid_, block_;
  size_t shared_bytes_;
  cudaStream_t stream_;
  Site site_;
};

// __shared__ T name;
template <class T>
T& shared_variable(const char* name, Site site = Site::current()) {
  static_assert(std::is_trivially_default_constructible_v<T>, "nobody constructs shared memory");
  return *static_cast<T*>(shared_variable(name, sizeof(T), site));
}
// extern __shared__ T name[];
template <class T>
T* shared_memory_of_launch() {
  return static_cast<T*>(shared_memory(sizeof(T)));
}

}  // namespace simt

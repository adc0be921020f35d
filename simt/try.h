// Included ahead of a .cu file that `make try` compiles: defines what CUDA's syntax translates to.
#pragma once
#include <cuda_runtime.h>

#include <concepts>
#include <string>
#include <type_traits>
#include <vector>

namespace simt {

// A launch that the program requested. At exit, a launch that was refused or never ran is reported.
struct Asked {
  const char* kernel = nullptr;
  Site site{};
  std::atomic<bool> ran = false;
  std::string refusal{};
};
Asked& ask(const char* kernel, Site);  // lives as long as the program
// A launch's pointer argument and the size of its elements; null, 0 for any other argument.
struct Passed {
  const void* pointer = nullptr;
  size_t element_bytes = 0;
};
template <class T>
Passed passed(T) {
  return {};
}
template <class T>
Passed passed(T* p) {
  if constexpr (std::is_void_v<T>)
    return {p, 1};
  else if constexpr (std::is_object_v<T>)
    return {p, sizeof(T)};
  else
    return {};
}
// Records a launch's arguments, so that learn/view names memory by the kernel's parameters.
void tell(const char* kernel, const std::vector<Passed>&);

// kernel<<<grid, block, shared_bytes, stream>>>(args...): Launcher(SIMT_KERNEL(kernel),
// ...)(args...).
#define SIMT_KERNEL(...) \
#__VA_ARGS__, [=](auto... simt_arguments) { __VA_ARGS__(simt_arguments...); }
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
  void operator()(Args... args) const {
    refuse_in_kernel("launches a kernel, but the stand-in lacks dynamic parallelism,", site_);
    Asked& asked = ask(kernel_, site_);
    const auto body = [=, &asked, call = call_] {
      asked.ran.store(true, std::memory_order_relaxed);
      call(args...);
    };
    tell(kernel_, {passed(args)...});
    cudaError_t error = cudaSuccess;
    ((error == cudaSuccess && (error = check(args))), ...);
    if (error == cudaSuccess)
      error = launch({.name = kernel_,
                      .grid = grid_,
                      .block = block_,
                      .shared_bytes = shared_bytes_,
                      .body = body},
                     stream_);
    if (error != cudaSuccess) asked.refusal = cudaGetErrorString(error);
  }

 private:
  template <class T>
  static cudaError_t check(T argument) {
    if constexpr (std::is_pointer_v<T>)
      return check_words(&argument, sizeof argument);
    else
      return check_argument(argument);
  }

  const char* kernel_;
  Call call_;
  dim3 grid_, block_;
  size_t shared_bytes_;
  cudaStream_t stream_;
  Site site_;
};

#ifdef __clang__  // an editor (.clangd), which sees the file before cuda_to_cpp
#define __shared__ static
#define __constant__ static
#endif
// __shared__ T name;
template <class T>
T& shared_variable(const char* name, Site site = Site::current()) {
  static_assert(std::is_trivially_default_constructible_v<T>, "shared memory runs no constructors");
  return *static_cast<T*>(shared_variable(name, sizeof(T), site, Extents::type<T>()));
}
// extern __shared__ T name[];
template <class T>
T* shared_memory_of_launch(const char* name) {
  return static_cast<T*>(shared_memory(sizeof(T), name, Extents::type<T[]>()));
}

void made_at(const void* allocation, Site);  // tells allocations with the same name apart
// Calls cudaMalloc(&x, bytes) and labels the allocation "x" for messages.
template <class Allocate, class T, class... Args>
cudaError_t allocate_named(Allocate allocate, Site site, const char* words, T** p, Args... args) {
  const cudaError_t error = allocate(p, args...);
  const std::string all = words;
  constexpr bool is_typed = !std::is_void_v<T>;
  if constexpr (is_typed)
    if (error == cudaSuccess) label(*p, all.substr(0, all.find(',')).c_str(), sizeof(T));
  if (error == cudaSuccess) made_at(*p, site);
  return error;
}

// __constant__ T name = values;  Kernels can't write it, and the host can't access it.
template <class T>
const T& constant_variable(const T& values = {}) {
  static_assert(std::is_trivially_copyable_v<T>, "constant memory runs no constructors");
  static_assert(sizeof(T) <= 65536, "there are 64 KiB of constant memory");
  void* memory = nullptr;
  cudaMalloc(&memory, sizeof(T));
  cudaMemcpy(memory, &values, sizeof(T), cudaMemcpyHostToDevice);
  return *static_cast<const T*>(memory);
}

}  // namespace simt

template <class T>
cudaError_t cudaMemcpyToSymbol(const T& symbol, const void* from, size_t bytes, size_t offset = 0,
                               cudaMemcpyKind kind = cudaMemcpyHostToDevice) {
  return cudaMemcpy(reinterpret_cast<char*>(const_cast<T*>(&symbol)) + offset, from, bytes, kind);
}
template <class T>
cudaError_t cudaMemcpyFromSymbol(void* to, const T& symbol, size_t bytes, size_t offset = 0,
                                 cudaMemcpyKind kind = cudaMemcpyDeviceToHost) {
  return cudaMemcpy(to, reinterpret_cast<const char*>(&symbol) + offset, bytes, kind);
}

#define SIMT_NAMED(function, ...)                                                  \
  ::simt::allocate_named([](auto... simt_all) { return (function)(simt_all...); }, \
                         ::simt::Site::current(), #__VA_ARGS__, __VA_ARGS__)
#define cudaMalloc(...) SIMT_NAMED(cudaMalloc, __VA_ARGS__)
#define cudaMallocManaged(...) SIMT_NAMED(cudaMallocManaged, __VA_ARGS__)

constexpr float2 make_float2(float x, float y) { return {x, y}; }
constexpr float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
constexpr int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }
// glibc declares functions with these names, too.
#define __expf ::simt_cuda::__expf
#define __exp2f ::simt_cuda::__exp2f
#define __logf ::simt_cuda::__logf
#define __log2f ::simt_cuda::__log2f
#define __sinf ::simt_cuda::__sinf
#define __cosf ::simt_cuda::__cosf

// Learners often begin with atomic sums of floats. Deleted, so that simt/name_missing explains why.
template <std::floating_point T>
T atomicAdd(T*, std::type_identity_t<T>) = delete;

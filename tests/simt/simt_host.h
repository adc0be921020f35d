// Shared by the tests of the stand-in's host side.
#pragma once
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <source_location>
#include <string>
#include <vector>

#include "kernels/cuda/launch.cuh"
#include "simt/device/control.h"

namespace bv::simt_gpu {

constexpr int length = 100;
constexpr size_t bytes = length * sizeof(float);
constexpr unsigned seeds = 20;

#ifdef __SANITIZE_ADDRESS__
constexpr bool asan = true;
#else
constexpr bool asan = false;
#endif

// The call must succeed.
inline void ok(cudaError_t error, std::source_location at = std::source_location::current()) {
  check(error, (std::string(at.file_name()) + ":" + std::to_string(at.line())).c_str());
}

// Message of the error that the call throws.
template <class Call>
std::string message_of(Call call) {
  try {
    call();
  } catch (const std::runtime_error& e) {
    return e.what();
  }
  return "no error";
}

// a[i] = x
inline __global__ void fill(float* a, float x, int n) {
  const int i = int(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) a[i] = x;
}
// to[i] = 2 from[i] + x
inline __global__ void twice_plus(float* to, const float* from, float x, int n) {
  const int i = int(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) to[i] = 2 * from[i] + x;
}
// a[at] = x
inline __global__ void write_at(float* a, long at, float x) { a[at] = x; }
// *to = a[at]
inline __global__ void read_at(float* to, const float* a, long at) { *to = a[at]; }

class SimtHostTest : public testing::Test {
 public:
  void SetUp() override { reset(); }
  void TearDown() override {
    reset();
    simt::stream_seed = 0;
  }

  static void reset() { ok(cudaDeviceReset()); }
  static float* device_array(size_t size = bytes) {
    float* p = nullptr;
    ok(cudaMalloc(&p, size));
    return p;
  }
  static float* pinned_array(float x, int n = length) {
    float* p = nullptr;
    ok(cudaMallocHost(&p, n * sizeof(float)));
    std::fill_n(p, n, x);
    return p;
  }
  static cudaStream_t stream(unsigned flags = cudaStreamNonBlocking) {
    cudaStream_t s = nullptr;
    ok(cudaStreamCreateWithFlags(&s, flags));
    return s;
  }
  static cudaEvent_t event() {
    cudaEvent_t e = nullptr;
    ok(cudaEventCreateWithFlags(&e, cudaEventDisableTiming));
    return e;
  }
  static void run_fill(float* a, float x, cudaStream_t s) {
    launch<fill>(dim3((length + 31) / 32), 32, 0, s, a, x, length);
  }
  static void run_twice_plus(float* to, const float* from, float x, cudaStream_t s) {
    launch<twice_plus>(dim3((length + 31) / 32), 32, 0, s, to, from, x, length);
  }
  static void after(cudaStream_t s, cudaStream_t other) {  // s waits for the work now in other
    const cudaEvent_t e = event();
    ok(cudaEventRecord(e, other));
    ok(cudaStreamWaitEvent(s, e));
  }
  static void copy(void* to, const void* from, cudaMemcpyKind kind, cudaStream_t s) {
    ok(cudaMemcpyAsync(to, from, bytes, kind, s));
  }
  static void synchronize(cudaStream_t s) { ok(cudaStreamSynchronize(s)); }
  static std::vector<float> download(const float* p, cudaStream_t s) {
    std::vector<float> host(length);
    copy(host.data(), p, cudaMemcpyDeviceToHost, s);
    synchronize(s);
    return host;
  }
  static std::vector<float> all(float x) { return std::vector<float>(length, x); }
};

// Whether `got` is the error `code`, and its message contains `words`.
inline testing::AssertionResult is(cudaError_t got, cudaError_t code, const std::string& words) {
  const std::string said = cudaGetErrorString(got);
  if (got == code && said.find(words) != std::string::npos) return testing::AssertionSuccess();
  return testing::AssertionFailure() << cudaGetErrorName(got) << ": " << said << "\nnot "
                                     << cudaGetErrorName(code) << ": " << words;
}

}  // namespace bv::simt_gpu

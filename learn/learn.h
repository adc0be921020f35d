// Shared by all rungs: made-up data, the clock of a GPU, the comparison with the plain loop, and
// the line that a rung prints. Everything of CUDA stands in the rungs.
#pragma once
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace learn {

inline double enlarged = 1;      // how many times as large the problem of the GPU is
inline float microseconds = -1;  // of a run, on a GPU

// The size of a dimension along which all work grows: small on the stand-in, whose counts are
// then multiplied, and the real one on a GPU.
inline int size(int small, int large) {
#ifdef __CUDACC__
  (void)small;
  return large;
#else
  enlarged = double(large) / small;
  return small;
#endif
}

// Numbers in [-1, 1), multiples of 1/128 so that 16 bits hold them; the same each time.
inline std::vector<float> numbers(size_t count, uint32_t seed) {
  std::vector<float> all(count);
  for (float& x : all) {
    seed = seed * 1664525 + 1013904223;
    x = float(seed >> 24) / 128 - 1;
  }
  return all;
}

inline float value(float x) { return x; }
inline float value(__nv_bfloat16 x) { return __bfloat162float(x); }
inline std::vector<__nv_bfloat16> rounded(const std::vector<float>& numbers) {
  std::vector<__nv_bfloat16> all(numbers.size());
  for (size_t i = 0; i < all.size(); ++i) all[i] = __float2bfloat16(numbers[i]);
  return all;
}

// Calls what launches the rung's kernels 20 times under a GPU's clock; not on the stand-in.
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

struct Rung {
  const char* name;   // "matmul v3: shared tile"
  const char* earns;  // the count that must be lower than the rung before has it: learn/ladder
  double bytes;       // that this problem has to read and write at least
  double flops;
  double weights = 0;         // bytes of these that stay as they are where the problem is enlarged
  const char* counts = "";    // the counts that the rung made itself: "saved 8192, sent 4096"
  const char* measured = "";  // the same on an H100: "MODEL OPERATION SHAPE" in bench/results
};

// Compares `got` with what expected(i) computes in double: all of it, or on a GPU some thousands.
// Prints the rung's line; returns main()'s exit code. LEARN_SPOIL=1 in the environment spoils one
// number, which has to be noticed.
template <class T, class Expected>
int finish(const Rung& rung, const std::vector<T>& got, double tolerance, Expected expected) {
  if (const cudaError_t error = cudaDeviceSynchronize(); error != cudaSuccess) {
    std::printf("%s: %s\n", rung.name, cudaGetErrorString(error));
    return 1;
  }
  const bool spoils = std::getenv("LEARN_SPOIL");
  size_t wrong = 0, looked_at = 0;
  double largest = 0;
  const size_t step = got.size() > 300000 ? got.size() / 4099 : 1;
  for (size_t i = 0; i < got.size(); i += step, ++looked_at) {
    const double is = value(got[i]) + (spoils && i == 0 ? 1 : 0);
    const double error = std::fabs(is - expected(i));
    wrong += !(error <= tolerance);  // NaN is wrong, too
    if (!(error <= largest)) largest = error;
  }
  std::printf("%s: %zu of %zu wrong, error %.1e <= %.1e", rung.name, wrong, looked_at, largest,
              tolerance);
  std::printf("; needs %.0f bytes, %.0f of weights, %.0f flops, times %.17g; earns %s", rung.bytes,
              rung.weights, rung.flops, enlarged, rung.earns);
  if (*rung.counts) std::printf("; %s", rung.counts);
  if (microseconds >= 0) std::printf("; took %.2f us", double(microseconds));
  std::printf("; measured as %s\n", *rung.measured ? rung.measured : "-");
  return wrong != 0;
}

}  // namespace learn

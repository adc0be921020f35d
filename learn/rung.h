// Shared by all rungs, with CUDA or without: made-up data, the comparison with the plain loop, and
// the line that a rung prints.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace learn {

inline double enlarged = 1;      // size of the GPU's problem, relative to this one
inline float microseconds = -1;  // of one run on a GPU; -1: not timed

// Numbers in [-1, 1), multiples of 1/128 so that 16 bits hold them; the same for the same seed.
inline std::vector<float> numbers(size_t count, uint32_t seed) {
  std::vector<float> all(count);
  for (float& x : all) {
    seed = seed * 1664525 + 1013904223;
    x = float(seed >> 24) / 128 - 1;
  }
  return all;
}

struct Rung {
  const char* name;   // "matmul v3: shared tile"
  const char* earns;  // the count that must be below the previous rung's: learn/ladder
  double bytes;       // that this problem must at least read and write
  double flops;
  double weights = 0;         // those of these bytes that don't grow with the problem
  const char* counts = "";    // counts that the rung makes itself: "saved 8192, sent 4096"
  const char* measured = "";  // this kernel on an H100: "MODEL OPERATION SHAPE" in bench/results
};

// Compares `got` with what expected(i) computes in double: all elements, or some thousands of more
// than 600000. Prints the rung's line; returns main()'s exit code. LEARN_SPOIL=1 in the environment
// falsifies one result, which must be detected.
template <class Expected>
int compare(const Rung& rung, const std::vector<float>& got, double tolerance, Expected expected) {
  const bool spoils = std::getenv("LEARN_SPOIL");
  size_t wrong = 0, looked_at = 0, first = 0;
  double largest = 0, first_is = 0;
  const size_t step = got.size() > 600000 ? got.size() / 4099 : 1;
  for (size_t i = 0; i < got.size(); i += step, ++looked_at) {
    const double is = double(got[i]) + (spoils && i == 0 ? 1 : 0);
    const double error = std::fabs(is - expected(i));
    if (!(error <= largest)) largest = error;
    if (error <= tolerance) continue;  // NaN is wrong, too
    if (wrong++ == 0) first = i, first_is = is;
  }
  if (wrong) {
    std::printf("%s: %zu of %zu wrong; the first is element %zu: %g, not %g +- %.1e\n", rung.name,
                wrong, looked_at, first, first_is, expected(first), tolerance);
    return 1;
  }
  std::printf("%s: %zu of %zu wrong, error %.1e <= %.1e", rung.name, wrong, looked_at, largest,
              tolerance);
  std::printf("; needs %.0f bytes, %.0f of weights, %.0f flops, times %.17g; earns %s", rung.bytes,
              rung.weights, rung.flops, enlarged, rung.earns);
  if (*rung.counts) std::printf("; %s", rung.counts);
  if (microseconds >= 0) std::printf("; took %.2f us", double(microseconds));
  std::printf("; measured as %s\n", *rung.measured ? rung.measured : "-");
  return 0;
}

}  // namespace learn

// Exercise 5: a race. 256 threads count how often each digit occurs. Many have the same digit, and
// bins[digit] += 1 is three operations: read, add, write. If two threads read before either writes,
// one count is lost. The stand-in runs these threads one after another, so the counts are right; it
// still reports the race. A barrier can't help: there would have to be one between any two of the
// 256 threads. CUDA's *atomics* do all three as one operation.
//   make learn EXERCISE=5
#include "learn/exercises/exercise.h"

constexpr int threads = 256, digits = 10;

// counts [digits], digit [threads]
__global__ void count_digits(int* counts, const int* digit) {
  __shared__ int bins[digits];
  const int t = threadIdx.x;
  if (t < digits) bins[t] = 0;
  __syncthreads();
  // --- your code: 1 line ---
  bins[digit[t]] += 1;
  // --- end of your code ---
  __syncthreads();
  if (t < digits) counts[t] = bins[t];
}

int main() {
  std::vector<int> digit(threads), expected(digits, 0);
  for (int t = 0; t < threads; ++t) ++expected[digit[t] = t * t % digits];
  const learn::OnGpu<int> gpu_digit(digit), gpu_counts(digits);
  count_digits<<<1, threads>>>(gpu_counts.data, gpu_digit.data);
  const std::vector<int> counts = gpu_counts.to_host();

  const size_t wrong = learn::first_wrong(counts, 0, [&](size_t i) { return expected[i]; });
  if (wrong == digits) {
    std::printf("all %d counts are right\n", digits);
    if (learn::work_together(32, 32)) return 0;
    std::printf("expected that all %d threads count their digit at the same time\n", threads);
    return 1;
  }
  std::printf("%zu comes up %d times, but was counted %d times\n", wrong, expected[wrong],
              counts[wrong]);
  return 1;
}

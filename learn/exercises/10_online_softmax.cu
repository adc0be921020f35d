// Exercise 10: online softmax. A softmax needs the sum of exp(x - max), so that nothing overflows,
// and thus the maximum before the sum: two passes. Attention computes scores a tile at a time and
// needs a single pass. So it keeps the sum relative to the largest score so far; when a larger one
// arrives, the sum is exp(new max - old max) times too large. The code below doesn't correct it.
//   make learn EXERCISE=10
#include "learn/exercises/exercise.h"

constexpr int rows = 32, K = 50;

// lse [rows]: log of the sum of exp(x) of each row; x [rows, K]; one thread per row
__global__ void log_sum_exp(float* lse, const float* x) {
  const float* row = x + threadIdx.x * K;
  float max = -INFINITY, sum = 0;
  for (int k = 0; k < K; ++k) {
    // --- your code: 3 lines ---
    max = fmaxf(max, row[k]);
    sum += expf(row[k] - max);
    // --- end of your code ---
  }
  lse[threadIdx.x] = max + logf(sum);
}

int main() {
  std::vector<float> x = learn::numbers(rows * K, 1);
  for (int k = 0; k < K; ++k) x[k] = float(-k), x[K + k] = float(k);  // row 0 falls, row 1 rises
  for (int k = 0; k < K; ++k) x[2 * K + k] += 200;                    // exp() of it overflows
  const learn::OnGpu<float> gpu_x(x), gpu_lse(rows);
  log_sum_exp<<<1, rows>>>(gpu_lse.data, gpu_x.data);
  const std::vector<float> lse = gpu_lse.to_host();

  const auto expected = [&](size_t row) {
    double sum = 0;
    for (int k = 0; k < K; ++k) sum += std::exp(double(x[row * K + k]));
    return std::log(sum);
  };
  const size_t wrong = learn::first_wrong(lse, 1e-4, expected);
  if (wrong == rows) return std::printf("all %d rows are right\n", rows), 0;
  const char* const kinds[] = {", whose numbers fall", ", whose numbers rise", ", around 200"};
  std::printf("row %zu%s: should be %.4f, is %.4f\n", wrong, wrong < 3 ? kinds[wrong] : "",
              expected(wrong), lse[wrong]);
  if (wrong == 1)
    std::printf(
        "row 0 falls, so that its first number is its maximum, and it is right:\n"
        "what was summed before a new maximum came?\n");
  return 1;
}

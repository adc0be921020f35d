// Exercise 8: layer norm. out = (x - mean) / sqrt(variance + eps): one warp per row, 6 numbers per
// lane, in registers. The code below computes the variance as mean(x^2) - mean(x)^2, which is the
// same mathematically and doesn't need the mean first. In fp32's 24 bits it isn't the same: these
// rows lie around 2000, both terms around 4000000, and rounding loses their small difference.
//   make learn EXERCISE=8
#include "learn/exercises/exercise.h"

constexpr int lanes = 32, C = 192, per_lane = C / lanes, rows = 8;
constexpr float eps = 1e-6f;

__device__ float warp_sum(float x) {
  for (int bit = lanes / 2; bit > 0; bit /= 2) x += __shfl_xor_sync(~0u, x, bit);
  return x;
}

// out, inp [rows, C]
__global__ void layernorm(float* out, const float* inp) {
  const int first = blockIdx.x * C + threadIdx.x;
  float x[per_lane], sum = 0, squares = 0;
  for (int i = 0; i < per_lane; ++i) sum += x[i] = inp[first + i * lanes];
  const float mean = warp_sum(sum) / C;
  // --- your code: 2 lines ---
  for (int i = 0; i < per_lane; ++i) squares += x[i] * x[i];
  const float variance = warp_sum(squares) / C - mean * mean;
  // --- end of your code ---
  for (int i = 0; i < per_lane; ++i)
    out[first + i * lanes] = (x[i] - mean) * rsqrtf(variance + eps);
}

int main() {
  std::vector<float> inp = learn::numbers(rows * C, 1);
  for (float& x : inp) x += 2000;
  const learn::OnGpu<float> gpu_inp(inp), gpu_out(rows * C);
  layernorm<<<rows, lanes>>>(gpu_out.data, gpu_inp.data);
  const std::vector<float> out = gpu_out.to_host();

  double variance = 0;
  const auto expected = [&](size_t i) {
    const float* x = &inp[i / C * C];
    double mean = 0;
    variance = 0;
    for (int c = 0; c < C; ++c) mean += x[c] / double(C);
    for (int c = 0; c < C; ++c) variance += (x[c] - mean) * (x[c] - mean) / C;
    return (inp[i] - mean) / std::sqrt(variance + eps);
  };
  const size_t wrong = learn::first_wrong(out, 2e-3, expected);
  if (wrong == out.size()) return std::printf("all %zu numbers are right\n", out.size()), 0;
  std::printf("out[%zu] should be %.4f, is %.4f\n", wrong, expected(wrong),
              learn::shown(out[wrong]));
  std::printf("the variance of its row is %.4f; fp32 steps by 0.25 at 4000000\n", variance);
  return 1;
}

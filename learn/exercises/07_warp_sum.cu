// Exercise 7: shuffles. The lanes of a warp can read each other's registers, without shared memory
// and without a barrier: __shfl_xor_sync(~0u, x, bit) is the x of the lane whose number differs in
// that bit. After adding it for bit 16, each lane holds the sum of 2 lanes; for 8, of 4; and after
// five rounds, each of the 32 lanes holds the sum of all. A layer norm uses this.
//   make learn EXERCISE=7
#include "learn/exercises/exercise.h"

constexpr int lanes = 32, C = 192;

__device__ float warp_sum(float x) {
  // --- your code: 1 line ---
  // --- end of your code ---
  return x;
}

// sums [lanes]: the row's sum, as each lane has it; row [C]
__global__ void row_sum(float* sums, const float* row) {
  float mine = 0;
  for (int c = threadIdx.x; c < C; c += lanes) mine += row[c];
  sums[threadIdx.x] = warp_sum(mine);
}

int main() {
  std::vector<float> row(C);
  for (int c = 0; c < C; ++c) row[c] = float(c);
  const learn::OnGpu<float> gpu_row(row), gpu_sums(lanes);
  row_sum<<<1, lanes>>>(gpu_sums.data, gpu_row.data);
  const std::vector<float> sums = gpu_sums.to_host();

  constexpr float all = C * (C - 1) / 2;
  const size_t wrong = learn::first_wrong(sums, 0, [](size_t) { return all; });
  if (wrong == lanes) return std::printf("every lane holds the row's sum, %g\n", all), 0;
  std::printf("lane %zu should hold the row's sum, %g, but holds %g", wrong, all, sums[wrong]);
  if (wrong > 0)
    std::printf(", while lane 0 holds it: all lanes need the mean");
  else if (sums[0] == 480)  // 0 + 32 + ... + 160
    std::printf(":\nthat is the sum of its own 6 numbers, row[0], row[32], ...");
  std::printf("\n");
  return 1;
}

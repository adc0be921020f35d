// Exercise 11: who holds what. mma.m16n8k16 multiplies a 16 x 16 by a 16 x 8 matrix, the whole warp
// at once. No lane has a whole matrix: each holds 4 of the product's 128 numbers in registers. The
// instruction defines which; the PTX guide has a figure (mma.m16n8k16, accumulators). Here
// d[row][col] = 8 row + col, so that each number shows where it belongs.
//   make learn EXERCISE=11
#include "kernels/cuda/ptx.cuh"
#include "learn/exercises/exercise.h"

constexpr int M = 16, N = 8, lanes = 32;

// Number i (0 to 3) of a lane belongs to this row and column of d [M, N].
// --- your code: 2 lines ---
__host__ __device__ int row_of(int lane, int i) { return lane / 2; }
__host__ __device__ int col_of(int lane, int i) { return lane % 2 * 4 + i; }
// --- end of your code ---

// d [M, N]; held [lanes, 4]: what each lane has. Row r of a is (8 r, 1, 0, ...), and column c
// of b is (1, c, 0, ...).
__global__ void multiply(float* d, float* held) {
  const int lane = threadIdx.x, row = lane / 4, k = lane % 4 * 2;
  const auto pair = [](float x, float y) {
    const __half2 both = __floats2half2_rn(x, y);
    return *reinterpret_cast<const uint32_t*>(&both);
  };
  const float one = k == 0 ? 1 : 0;
  const uint32_t a[4] = {pair(one * 8 * row, one), pair(one * 8 * (row + 8), one), 0, 0};
  float mine[4] = {};
  bv::BAREVISION_GPU::mma_m16n8k16<__half>(mine, a, pair(one, one * row), 0);
  for (int i = 0; i < 4; ++i) {
    d[row_of(lane, i) * N + col_of(lane, i)] = mine[i];
    held[lane * 4 + i] = mine[i];
  }
}

int main() {
  int owner[M * N];
  std::fill(owner, owner + M * N, -1);
  for (int lane = 0; lane < lanes; ++lane)
    for (int i = 0; i < 4; ++i) {
      const int row = row_of(lane, i), col = col_of(lane, i);
      const bool inside = row >= 0 && row < M && col >= 0 && col < N;
      if (inside && owner[row * N + col] < 0) {
        owner[row * N + col] = lane;
        continue;
      }
      std::printf("number %d of lane %d would go to d[%d][%d], ", i, lane, row, col);
      if (inside)
        std::printf("which lane %d has taken\n", owner[row * N + col]);
      else
        std::printf("which is outside of 16 x 8\n");
      return 1;
    }
  const learn::OnGpu<float> gpu_d(M * N), gpu_held(lanes * 4);
  multiply<<<1, lanes>>>(gpu_d.data, gpu_held.data);
  const size_t wrong = learn::first_wrong(gpu_d.to_host(), 0, [](size_t i) { return double(i); });
  if (wrong == M * N) return std::printf("all 128 numbers are where they belong\n"), 0;
  const std::vector<float> held = gpu_held.to_host();
  for (const int lane : {0, 1, 4, 5}) {
    std::printf("lane %d holds", lane);
    for (int i = 0; i < 4; ++i)
      std::printf("  d[%d][%d]", int(held[lane * 4 + i]) / N, int(held[lane * 4 + i]) % N);
    std::printf("; your code puts them at");
    for (int i = 0; i < 4; ++i) std::printf("  [%d][%d]", row_of(lane, i), col_of(lane, i));
    std::printf("\n");
  }
  return 1;
}

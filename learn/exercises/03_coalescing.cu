// Exercise 3: coalescing. A warp doubles 1024 numbers in 32 turns; in each, its 32 threads (lanes)
// run in step and touch 32 numbers at once. Memory comes in sectors of 32 bytes, 8 floats: what
// counts is how many sectors the 32 addresses of a turn fall into. Every number has to be touched
// once; in which turn, and by which lane, is up to you.
//   make learn EXERCISE=3
// Hint: 32 floats that lie side by side fill 4 sectors. So the lanes of one turn should be
// neighbours: let the lane, not the turn, be what is added last.
#include <set>

#include "learn/exercises/exercise.h"

constexpr int lanes = 32, turns = 32, n = lanes * turns;

// --- your code: 1 line ---
__host__ __device__ int element(int lane, int turn) { return lane * turns + turn; }
// --- end of your code ---

// x [n]
__global__ void twice(float* x) {
  for (int turn = 0; turn < turns; ++turn) x[element(threadIdx.x, turn)] *= 2;
}

int main() {
  std::set<int> touched;
  size_t most = 0;
  for (int turn = 0; turn < turns; ++turn) {
    std::set<int> sectors;
    for (int lane = 0; lane < lanes; ++lane) {
      const int i = element(lane, turn);
      if (i < 0 || i >= n || !touched.insert(i).second) {
        std::printf("lane %d touches x[%d] in turn %d: there are x[0] to x[%d], each for once\n",
                    lane, i, turn, n - 1);
        return 1;
      }
      sectors.insert(i * int(sizeof(float)) / 32);
    }
    most = std::max(most, sectors.size());
  }
  const std::vector<float> x = learn::numbers(n, 1);
  const learn::OnGpu<float> gpu_x(x);
  twice<<<1, lanes>>>(gpu_x.data);
  const std::vector<float> doubled = gpu_x.to_host();
  const size_t wrong = learn::first_wrong(doubled, 0, [&](size_t i) { return 2 * x[i]; });
  if (wrong < n)
    return std::printf("x[%zu] should be %g, is %g\n", wrong, 2 * x[wrong], doubled[wrong]), 1;

  std::printf("all %d numbers are right; a turn touches %zu sectors of 32 bytes\n", n, most);
  if (most <= 4) return 0;
  std::printf("expected 4. In turn 0, lane 0 touches x[%d] and lane 1 x[%d], %d bytes away:\n",
              element(0, 0), element(1, 0), std::abs(element(1, 0) - element(0, 0)) * 4);
  std::printf("%zu bytes move for the 128 that the warp uses\n", most * 32);
  return 1;
}

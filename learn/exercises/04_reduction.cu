// Exercise 4: reduction and barriers. A block adds 200 numbers as a tree: 100 threads add the upper
// half to the lower, then 50 threads the second quarter to the first, then 25: 25 sums are left,
// of which 12 threads add 12 to 12 others, so that 13 are left, and so on down to one number.
// Between two rounds every thread must wait for the others: a thread that runs ahead would read
// sums that aren't written yet. __syncthreads() is that barrier, and all threads have to reach it.
//   make learn EXERCISE=4
#include "learn/exercises/exercise.h"

constexpr int threads = 200, blocks = 4;

// sums [blocks], x [blocks, threads]
__global__ void block_sums(float* sums, const float* x) {
  __shared__ float partial[threads];
  const int t = threadIdx.x;
  partial[t] = x[blockIdx.x * threads + t];
  __syncthreads();
  // --- your code: 5 lines ---
  // --- end of your code ---
  if (t == 0) sums[blockIdx.x] = partial[0];
}

int main() {
  std::vector<float> x(blocks * threads);
  for (size_t i = 0; i < x.size(); ++i) x[i] = float(i + 1);
  const learn::OnGpu<float> gpu_x(x), gpu_sums(blocks);
  block_sums<<<blocks, threads>>>(gpu_sums.data, gpu_x.data);
  const std::vector<float> sums = gpu_sums.to_host();

  const auto expected = [](size_t block) {  // sum of 200 block + 1, ..., 200 block + 200
    return threads * (threads * double(block) + (threads + 1) / 2.0);
  };
  const size_t wrong = learn::first_wrong(sums, 0, expected);
  if (wrong == blocks) {
    std::printf("1 + ... + 200 = %g, and the other blocks' sums are right\n", sums[0]);
    if (learn::work_together(threads / 2, 32)) return 0;
    std::printf("expected a tree: 8 rounds, in the first of which 100 threads add at once\n");
    return 1;
  }
  std::printf("sums[%zu] should be %g, is %g", wrong, expected(wrong), sums[wrong]);
  if (sums[wrong] == x[wrong * threads])
    std::printf(": partial[0] still holds thread 0's input");
  else
    std::printf(": some numbers are missing in it, or were added twice");
  std::printf("\n");
  return 1;
}

// Exercise 2: bounds. Threads come in whole blocks of 128, and 1000 numbers fill 7.8 of them. With
// too few blocks, some numbers are never written; with enough blocks, threads past the end write to
// memory that isn't the array's. A GPU reports neither.
//   make learn EXERCISE=2
#include "learn/exercises/exercise.h"

// --- your code: 2 lines ---
int blocks_for(int n, int threads) { return n / threads; }
__device__ bool has_work(int i, int n) { return true; }
// --- end of your code ---

__global__ void square(float* y, const float* x, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (has_work(i, n)) y[i] = x[i] * x[i];
}

int main() {
  constexpr int n = 1000, threads = 128;
  const std::vector<float> x = learn::numbers(n, 1);
  const learn::OnGpu<float> gpu_x(x), gpu_y(n);
  const int blocks = blocks_for(n, threads);
  square<<<blocks, threads>>>(gpu_y.data, gpu_x.data, n);
  const std::vector<float> y = gpu_y.to_host();

  // Too many blocks leave no trace in y.
  const auto is_exact = [&](int count) {
    const int is = blocks_for(count, threads), enough = count / threads + (count % threads != 0);
    if (is != enough)
      std::printf("blocks_for(%d, %d) is %d: in %d blocks each number has a thread of its own%s\n",
                  count, threads, is, enough, is > enough ? ", the others have no work" : "");
    return is == enough;
  };
  const size_t wrong = learn::first_wrong(y, 0, [&](size_t i) { return x[i] * x[i]; });
  if (wrong == n) {
    std::printf("y = x^2: all %d numbers are right, by %d threads\n", n, blocks * threads);
    const int counts[] = {n, 8 * threads, 8 * threads + 1, 1};
    return !std::all_of(std::begin(counts), std::end(counts), is_exact);
  }
  std::printf("y[%zu] should be %g, is %g", wrong, x[wrong] * x[wrong], learn::shown(y[wrong]));
  if (std::isnan(y[wrong])) std::printf(": no thread has written it");
  std::printf("\n%d blocks of %d threads are %d threads, for %d numbers\n", blocks, threads,
              blocks * threads, n);
  return 1;
}

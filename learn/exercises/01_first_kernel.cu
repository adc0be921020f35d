// Exercise 1: your first kernel. y = 2 x + 1 for 512 numbers, by 4 blocks of 128 threads.
// A kernel is written for one thread, and every thread runs it. Threads differ in two indices:
// threadIdx.x, the thread's index in its block, and blockIdx.x, its block's index. A block has
// blockDim.x threads. Which of the 512 numbers does this thread compute?
//   make learn EXERCISE=1
#include <cuda_runtime.h>

#include <cmath>
#include <cstdio>

__global__ void line(float* y, const float* x) {
  // --- your code: 1 line ---
  const int i = 0;
  // --- end of your code ---
  y[i] = 2 * x[i] + 1;
}

int main() {
  constexpr int n = 512, threads = 128;
  float x[n], y[n];
  for (int i = 0; i < n; ++i) x[i] = i;

  float *gpu_x, *gpu_y;  // memory of the GPU, which the host reaches only by copies
  cudaMalloc(&gpu_x, sizeof x);
  cudaMalloc(&gpu_y, sizeof y);
  cudaMemcpy(gpu_x, x, sizeof x, cudaMemcpyHostToDevice);
  line<<<n / threads, threads>>>(gpu_y, gpu_x);
  cudaMemcpy(y, gpu_y, sizeof y, cudaMemcpyDeviceToHost);

  int wrong = 0;
  while (wrong < n && y[wrong] == 2 * x[wrong] + 1) ++wrong;
  if (wrong == n) {
    printf("y = 2 x + 1: all %d numbers are right\n", n);
    return 0;
  }
  printf("y[%d] should be %g, is %g", wrong, 2 * x[wrong] + 1, std::fabs(y[wrong]));
  printf(std::isnan(y[wrong]) ? ": no thread has written it\n" : "\n");
  int written = 0;
  for (const float number : y) written += !std::isnan(number);
  printf("%d threads wrote %d of %d numbers: several threads have the same i\n", n, written, n);
  if (wrong == threads)
    printf("y[0] to y[%d] are right: do the threads of all blocks compute those?\n", wrong - 1);
  return 1;
}

// The sum of n numbers: each block adds 256 of them as a tree in shared memory, and the host adds
// the blocks' sums.
//   make try FILE=learn/examples/reduction.cu
//   make try FILE=learn/examples/reduction.cu DEFINE=FORGET_BARRIER         names the race
//   make try FILE=learn/examples/reduction.cu DEFINE=BARRIER_IN_A_BRANCH
#include <cuda_runtime.h>

#include <cstdio>

constexpr int threads = 256;

// sums [blocks]
__global__ void block_sums(const float* x, float* sums, int n) {
  __shared__ float partial[threads];
  const int t = threadIdx.x, i = blockIdx.x * threads + t;
  partial[t] = i < n ? x[i] : 0;
  __syncthreads();  // all of partial is written
  for (int half = threads / 2; half > 0; half /= 2) {
#ifdef BARRIER_IN_A_BRANCH
    if (t < half) {
      partial[t] += partial[t + half];
      __syncthreads();  // the other threads never reach it
    }
#else
    if (t < half) partial[t] += partial[t + half];
#ifndef FORGET_BARRIER
    __syncthreads();  // the next round reads what other threads have written in this one
#endif
#endif
  }
  if (t == 0) sums[blockIdx.x] = partial[0];
}

int main() {
  constexpr int n = 1000, blocks = (n + threads - 1) / threads;
  float x[n], sums[blocks];
  for (int i = 0; i < n; ++i) x[i] = i;

  float *gpu_x, *gpu_sums;
  cudaMalloc(&gpu_x, sizeof x);
  cudaMalloc(&gpu_sums, sizeof sums);
  cudaMemcpy(gpu_x, x, sizeof x, cudaMemcpyHostToDevice);
  block_sums<<<blocks, threads>>>(gpu_x, gpu_sums, n);
  const cudaError_t error = cudaMemcpy(sums, gpu_sums, sizeof sums, cudaMemcpyDeviceToHost);
  if (error != cudaSuccess) {
    printf("%s\n", cudaGetErrorString(error));
    return 1;
  }
  float sum = 0;
  for (const float s : sums) sum += s;
  printf("reduction: 0 + 1 + ... + 999 = %g, should be 499500\n", sum);
  return sum != 499500;
}

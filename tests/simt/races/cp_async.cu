// silent
// The next tile is in flight while all threads read this one.
#include <cuda_pipeline.h>

__global__ void pipeline(int* x) {
  __shared__ int tiles[2][64];
  const int t = threadIdx.x;
  __pipeline_memcpy_async(&tiles[0][t], &x[t], sizeof(int));
  __pipeline_commit();
  int sum = 0;
  for (int i = 0; i < 4; ++i) {
    if (i < 3) __pipeline_memcpy_async(&tiles[(i + 1) % 2][t], &x[64 * (i + 1) + t], sizeof(int));
    __pipeline_commit();
    __pipeline_wait_prior(1);
    __syncthreads();  // all threads' parts of the tile have arrived
    sum += tiles[i % 2][63 - t];
    __syncthreads();  // all have read it: the next round overwrites it
  }
  x[256 + t] = sum;
}

int main() {
  int* x;
  cudaMalloc(&x, 320 * sizeof *x);
  cudaMemset(x, 0, 320 * sizeof *x);
  pipeline<<<1, 64>>>(x);
  return cudaDeviceSynchronize();
}

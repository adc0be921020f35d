// race: tile: cp.async and read: no barrier between them
// Each thread waits for its own copies only.
#include <cuda_pipeline.h>

__global__ void reverse(int* x) {
  __shared__ int tile[64];
  __pipeline_memcpy_async(&tile[threadIdx.x], &x[threadIdx.x], sizeof(int));  // (1)
  __pipeline_commit();
  __pipeline_wait_prior(0);
  x[threadIdx.x] = tile[63 - threadIdx.x];  // (2)
}

int main() {
  int* x;
  cudaMalloc(&x, 64 * sizeof *x);
  cudaMemset(x, 0, 64 * sizeof *x);
  reverse<<<1, 64>>>(x);
  return cudaDeviceSynchronize();
}

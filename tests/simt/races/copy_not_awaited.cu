// race: tile: cp.async and read: no wait for the copy between them
// A thread reads its own copy while the copy may still be in flight.
#include <cuda_pipeline.h>

__global__ void twice(int* x) {
  __shared__ int tile[32];
  __pipeline_memcpy_async(&tile[threadIdx.x], &x[threadIdx.x], sizeof(int));  // (1)
  __pipeline_commit();
  x[threadIdx.x] = 2 * tile[threadIdx.x];  // (2)
  __pipeline_wait_prior(0);
}

int main() {
  int* x;
  cudaMalloc(&x, 32 * sizeof *x);
  cudaMemset(x, 0, 32 * sizeof *x);
  twice<<<1, 32>>>(x);
  return cudaDeviceSynchronize();
}

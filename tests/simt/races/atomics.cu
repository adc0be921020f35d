// silent
// A histogram: atomics in shared memory, then one per bin in global memory.
__global__ void histogram(int* counts) {
  __shared__ int bins[16];
  if (threadIdx.x < 16) bins[threadIdx.x] = 0;
  __syncthreads();
  atomicAdd(&bins[threadIdx.x % 16], 1);
  __syncthreads();
  if (threadIdx.x < 16) atomicAdd(&counts[threadIdx.x], bins[threadIdx.x]);
}

int main() {
  int* x;
  cudaMalloc(&x, 16 * sizeof *x);
  cudaMemset(x, 0, 16 * sizeof *x);
  histogram<<<4, 64>>>(x);
  return cudaDeviceSynchronize();
}

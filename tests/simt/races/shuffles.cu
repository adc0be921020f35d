// silent
// A block's sum: within warps by shuffles, then over the warps' sums in shared memory.
__global__ void block_sum(int* x) {
  __shared__ int sums[4];
  int sum = x[threadIdx.x];
  for (int bits = 16; bits; bits /= 2) sum += __shfl_xor_sync(~0u, sum, bits);
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x < 32) {
    sum = threadIdx.x < 4 ? sums[threadIdx.x] : 0;
    for (int bits = 2; bits; bits /= 2) sum += __shfl_down_sync(~0u, sum, bits);
    if (threadIdx.x == 0) x[0] = sum;
  }
}

int main() {
  int* x;
  cudaMalloc(&x, 128 * sizeof *x);
  cudaMemset(x, 0, 128 * sizeof *x);
  block_sum<<<1, 128>>>(x);
  return cudaDeviceSynchronize();
}

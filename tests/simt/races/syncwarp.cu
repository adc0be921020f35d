// silent
// Each warp adds in its own part of shared memory: __syncwarp() before and after each write.
__global__ void warp_sums(int* x) {
  __shared__ int sums[2][64];
  int* const mine = sums[threadIdx.x / 32];
  const int lane = threadIdx.x % 32;
  mine[lane] = x[threadIdx.x];
  mine[lane + 32] = 0;
  __syncwarp();
  for (int half = 16; half; half /= 2) {
    const int sum = mine[lane] + mine[lane + half];
    __syncwarp();
    mine[lane] = sum;
    __syncwarp();
  }
  x[threadIdx.x] = mine[0];
}

int main() {
  int* x;
  cudaMalloc(&x, 64 * sizeof *x);
  cudaMemset(x, 0, 64 * sizeof *x);
  warp_sums<<<1, 64>>>(x);
  return cudaDeviceSynchronize();
}

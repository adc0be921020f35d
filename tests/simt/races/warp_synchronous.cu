// race: sums: read and write: no __syncwarp() or barrier between them
// Code from before Volta, when warps ran in lockstep: volatile doesn't replace __syncwarp().
__global__ void warp_sums(int* x) {
  __shared__ volatile int sums[64];
  const int lane = threadIdx.x;
  sums[lane] = x[lane];
  sums[lane + 32] = 0;
  __syncwarp();
  for (int half = 16; half; half /= 2) sums[lane] = sums[lane] + sums[lane + half];  // (1)(2)
  x[lane] = sums[lane];
}

int main() {
  int* x;
  cudaMalloc(&x, 32 * sizeof *x);
  cudaMemset(x, 0, 32 * sizeof *x);
  warp_sums<<<1, 32>>>(x);
  return cudaDeviceSynchronize();
}

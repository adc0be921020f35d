// race: x: write and read: no fence and atomic between these blocks
// A barrier orders only its own block, but the next block reads across the boundary.
__global__ void shift(int* x) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  const int left = i ? x[i - 1] : 0;  // (2)
  __syncthreads();
  x[i] = left;  // (1)
}

int main() {
  int* x;
  cudaMalloc(&x, 128 * sizeof *x);
  cudaMemset(x, 0, 128 * sizeof *x);
  shift<<<2, 64>>>(x);
  return cudaDeviceSynchronize();
}

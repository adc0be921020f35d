// silent
// A stream's launches follow each other: the second reads what all blocks of the first wrote.
__global__ void fill(int* x) { x[blockIdx.x * blockDim.x + threadIdx.x] = threadIdx.x; }
__global__ void reverse(int* x) {
  const unsigned n = gridDim.x * blockDim.x, i = blockIdx.x * blockDim.x + threadIdx.x;
  x[n + i] = x[n - 1 - i];
}

int main() {
  int* x;
  cudaMalloc(&x, 256 * sizeof *x);
  fill<<<4, 32>>>(x);
  reverse<<<4, 32>>>(x);
  return cudaDeviceSynchronize();
}

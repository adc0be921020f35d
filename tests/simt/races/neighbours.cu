// race: x: read and write: no __syncwarp() or barrier between them
// Each thread reads its neighbour's element, which the neighbour changes.
__global__ void differences(int* x) {
  if (threadIdx.x < 63) x[threadIdx.x] = x[threadIdx.x + 1] - x[threadIdx.x];  // (1)(2)
}

int main() {
  int* x;
  cudaMalloc(&x, 64 * sizeof *x);
  cudaMemset(x, 0, 64 * sizeof *x);
  differences<<<1, 64>>>(x);
  return cudaDeviceSynchronize();
}

// race: tile: write and read: no __syncwarp() or barrier between them
// A shuffle waits for the lanes, but doesn't order their accesses to memory.
__global__ void neighbour(int* x) {
  __shared__ int tile[32];
  tile[threadIdx.x] = x[threadIdx.x];  // (1)
  const int from = __shfl_xor_sync(~0u, threadIdx.x, 1);
  x[threadIdx.x] = tile[from];  // (2)
}

int main() {
  int* x;
  cudaMalloc(&x, 32 * sizeof *x);
  cudaMemset(x, 0, 32 * sizeof *x);
  neighbour<<<1, 32>>>(x);
  return cudaDeviceSynchronize();
}

// race: tile: read and write: no barrier between them
// The next round overwrites what another warp may still read.
__global__ void rotate(int* x) {
  __shared__ int tile[64];
  for (int round = 0; round < 3; ++round) {
    tile[threadIdx.x] = x[threadIdx.x];  // (2)
    __syncthreads();
    x[threadIdx.x] = tile[(threadIdx.x + 32) % 64];  // (1)
  }
}

int main() {
  int* x;
  cudaMalloc(&x, 64 * sizeof *x);
  cudaMemset(x, 0, 64 * sizeof *x);
  rotate<<<1, 64>>>(x);
  return cudaDeviceSynchronize();
}

// race: tile: write and read: no barrier between them
// A thread reads what another warp may not have written yet.
__global__ void reverse(int* x) {
  __shared__ int tile[64];
  tile[threadIdx.x] = x[threadIdx.x];       // (1)
  x[threadIdx.x] = tile[63 - threadIdx.x];  // (2)
}

int main() {
  int* x;
  cudaMalloc(&x, 64 * sizeof *x);
  cudaMemset(x, 0, 64 * sizeof *x);
  reverse<<<1, 64>>>(x);
  return cudaDeviceSynchronize();
}

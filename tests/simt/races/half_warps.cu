// silent
// Each half of a warp waits only for its own lanes.
__global__ void swap(int* x) {
  __shared__ int tile[32];
  const unsigned half = threadIdx.x < 16 ? 0x0000ffff : 0xffff0000;
  tile[threadIdx.x] = x[threadIdx.x];
  __syncwarp(half);
  x[threadIdx.x] = tile[threadIdx.x ^ 15];
  __syncwarp(half);
  tile[threadIdx.x ^ 15] = 0;
}

int main() {
  int* x;
  cudaMalloc(&x, 32 * sizeof *x);
  cudaMemset(x, 0, 32 * sizeof *x);
  swap<<<1, 32>>>(x);
  return cudaDeviceSynchronize();
}

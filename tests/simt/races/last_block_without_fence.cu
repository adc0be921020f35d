// race: sums: write and read: no fence and atomic between these blocks
// The last block counts the others, but their sums may arrive after the count.
__global__ void total(int* sums, unsigned* arrived) {
  __shared__ bool last;
  if (threadIdx.x == 0) {
    sums[blockIdx.x] = blockIdx.x;  // (1)
    last = atomicAdd(arrived, 1u) == gridDim.x - 1;
  }
  __syncthreads();
  if (!last || threadIdx.x) return;
  int all = 0;
  for (unsigned i = 0; i < gridDim.x; ++i) all += sums[i];  // (2)
  sums[0] = all;
}

int main() {
  int* sums;
  unsigned* arrived;
  cudaMalloc(&sums, 8 * sizeof *sums);
  cudaMalloc(&arrived, sizeof *arrived);
  cudaMemset(arrived, 0, sizeof *arrived);
  total<<<8, 32>>>(sums, arrived);
  return cudaDeviceSynchronize();
}

// race: halves: read and write: no barrier between them
// A round should write the half that it does not read; here it writes the one that it reads.
__global__ void smooth(int* x) {
  __shared__ int halves[2][64];
  halves[0][threadIdx.x] = x[threadIdx.x];
  for (int round = 0; round < 3; ++round) {
    __syncthreads();
    const int from = round % 2, to = from;                    // not 1 - from
    const int other = halves[from][(threadIdx.x + 32) % 64];  // (1)
    halves[to][threadIdx.x] = other + 1;                      // (2)
    if (round == 0) halves[1][threadIdx.x] = other;
  }
  __syncthreads();
  x[threadIdx.x] = halves[0][threadIdx.x];
}

int main() {
  int* x;
  cudaMalloc(&x, 64 * sizeof *x);
  cudaMemset(x, 0, 64 * sizeof *x);
  smooth<<<1, 64>>>(x);
  return cudaDeviceSynchronize();
}

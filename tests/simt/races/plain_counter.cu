// race: x: write and read: no __syncwarp() or barrier between them
// Threads that count without an atomic lose counts on a GPU, and none here.
__global__ void count(int* x) {
  *x = *x + 1;  // (1)(2)
}

int main() {
  int* x;
  cudaMalloc(&x, sizeof *x);
  cudaMemset(x, 0, sizeof *x);
  count<<<1, 256>>>(x);
  return cudaDeviceSynchronize();
}

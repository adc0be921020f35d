// race: x: write and read: no fence and atomic between these blocks
// Another block may see the flag before the value that it announces.
__global__ void send(int* x, volatile int* flag) {
  if (blockIdx.x == 0) {
    x[0] = 42;  // (1)
    *flag = 1;
  } else if (*flag) {
    x[1] = x[0];  // (2)
  }
}

int main() {
  int *x, *flag;
  cudaMalloc(&x, 2 * sizeof *x);
  cudaMalloc(&flag, sizeof *flag);
  cudaMemset(flag, 0, sizeof *flag);
  send<<<2, 1>>>(x, flag);
  return cudaDeviceSynchronize();
}

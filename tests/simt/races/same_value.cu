// silent
// Every thread that finds a zero sets the flag: all write the same value, read after a barrier.
__global__ void find(int* x) {
  __shared__ bool found;
  if (threadIdx.x == 0) found = false;
  __syncthreads();
  if (x[threadIdx.x] == 0) found = true;
  __syncthreads();
  if (threadIdx.x == 0) x[0] = found;
}

int main() {
  int* x;
  cudaMalloc(&x, 64 * sizeof *x);
  cudaMemset(x, 0, 64 * sizeof *x);
  find<<<1, 64>>>(x);
  return cudaDeviceSynchronize();
}

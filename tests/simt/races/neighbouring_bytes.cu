// silent
// Four threads write the bytes of one word, in shared memory and in global memory.
__global__ void reverse(unsigned char* x) {
  __shared__ unsigned char bytes[64];
  bytes[threadIdx.x] = threadIdx.x;
  __syncthreads();
  x[threadIdx.x] = bytes[63 - threadIdx.x];
}

int main() {
  unsigned char* x;
  cudaMalloc(&x, 64);
  reverse<<<1, 64>>>(x);
  return cudaDeviceSynchronize();
}

// c = a + b: one thread per element, and the last block is not full.
//   make try FILE=learn/examples/vector_add.cu
//   make try FILE=learn/examples/vector_add.cu DEFINE=FORGET_THE_END
#include <cuda_runtime.h>

#include <cstdio>

__global__ void vector_add(const float* a, const float* b, float* c, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;  // blockIdx.x whole blocks precede it
#ifdef FORGET_THE_END
  c[i] = a[i] + b[i];  // 8 blocks of 128 threads are 1024, but n is 1000
#else
  if (i < n) c[i] = a[i] + b[i];
#endif
}

int main() {
  constexpr int n = 1000, threads = 128;
  float a[n], b[n], c[n];
  for (int i = 0; i < n; ++i) a[i] = i, b[i] = 2 * i;

  float *gpu_a, *gpu_b, *gpu_c;  // kernels access only the GPU's memory
  cudaMalloc(&gpu_a, sizeof a);
  cudaMalloc(&gpu_b, sizeof b);
  cudaMalloc(&gpu_c, sizeof c);
  cudaMemcpy(gpu_a, a, sizeof a, cudaMemcpyHostToDevice);
  cudaMemcpy(gpu_b, b, sizeof b, cudaMemcpyHostToDevice);
  vector_add<<<(n + threads - 1) / threads, threads>>>(gpu_a, gpu_b, gpu_c, n);
  const cudaError_t error = cudaMemcpy(c, gpu_c, sizeof c, cudaMemcpyDeviceToHost);
  if (error != cudaSuccess) {
    printf("%s\n", cudaGetErrorString(error));
    return 1;
  }
  int wrong = 0;
  for (int i = 0; i < n; ++i) wrong += c[i] != 3 * i;
  printf("vector_add: c[999] = %g, %d of %d wrong\n", c[n - 1], wrong, n);
  return wrong != 0;
}

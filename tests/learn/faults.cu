// A run with healthy kernels and faults, for tests/learn/view_test.cpp.
#include <cuda_runtime.h>

#include <cstdio>
#include <vector>

constexpr int rows = 64, columns = 256;

__global__ void scale(float* out, const float* inp, float factor) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i] = factor * inp[i];
}
// A lane sums a row: a load touches 32 sectors where 4 hold what it needs.
__global__ void row_sums(float* sums, const float* matrix) {
  const int row = blockIdx.x * blockDim.x + threadIdx.x;
  float sum = 0;
  for (int c = 0; c < columns; ++c) sum += matrix[row * columns + c];
  sums[row] = sum;
}
// A warp's load begins 4 bytes past a sector: 5 sectors where 4 hold what it needs.
__global__ void shift(float* out, const float* inp) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i] = inp[i + 1];
}
// One lane stores, once per block: a sector of 32 bytes for 4.
__global__ void block_sums(float* sums, const float* inp) {
  __shared__ float part[8];
  float sum = inp[blockIdx.x * blockDim.x + threadIdx.x];
  for (int step = 16; step; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int w = 1; w < 8; ++w) sum += part[w];
    sums[blockIdx.x] = sum;
  }
}
__global__ void transpose(float* out, const float* inp) {
  __shared__ float tile[32][32];
  const int x = threadIdx.x, y = threadIdx.y;
  tile[y][x] = inp[(blockIdx.y * 32 + y) * columns + blockIdx.x * 32 + x];
  __syncthreads();
  out[(blockIdx.x * 32 + y) * rows + blockIdx.y * 32 + x] = tile[x][y];
}
// Pointers that aren't parameters.
struct Arrays {
  float* out;
  const float* inp;
};
__global__ void copy(Arrays a) { a.out[threadIdx.x] = a.inp[threadIdx.x]; }

float* made(size_t n) {
  float* p;
  cudaMalloc(&p, n * sizeof(float));
  cudaMemset(p, 0, n * sizeof(float));
  return p;
}

int main() {
  std::vector<float*> arrays;
  for (int i = 0; i < 3; ++i) arrays.push_back(made(rows * columns + 32));
  scale<<<rows, columns>>>(arrays[0], arrays[1], 2.f);
  row_sums<<<1, rows>>>(arrays[2], arrays[0]);
  shift<<<rows, columns>>>(arrays[1], arrays[0]);
  block_sums<<<rows, columns>>>(arrays[2], arrays[1]);
  transpose<<<dim3(columns / 32, rows / 32), dim3(32, 32)>>>(arrays[0], arrays[1]);
  copy<<<1, 32>>>(Arrays{arrays[2], arrays[1]});
  cudaDeviceSynchronize();
}

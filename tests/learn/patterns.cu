// Kernels whose pictures are known by hand, for tests/learn/view_test.cpp.
#include <cstdio>

#include "kernels/cuda/ptx.cuh"

using namespace bv::simt_gpu;

__global__ void strided(float* out, const float* inp) {
  out[threadIdx.x] = inp[32 * threadIdx.x];  // 32 sectors, 4 are needed
}
__global__ void misplaced(float* out, const float* inp) {
  out[threadIdx.x] = inp[threadIdx.x + 1];  // 5 sectors, 4 are needed
}
__global__ void broadcast(float* out, const float* inp) { out[threadIdx.x] = inp[3]; }
__global__ void half_of_the_lanes(float* out, const float* inp) {
  if (threadIdx.x % 2) out[threadIdx.x] = inp[threadIdx.x];
}
template <int pitch>
__global__ void transpose(float* out, const float* inp) {
  __shared__ float tile[32][pitch];
  tile[threadIdx.y][threadIdx.x] = inp[32 * threadIdx.y + threadIdx.x];
  __syncthreads();
  out[32 * threadIdx.y + threadIdx.x] = tile[threadIdx.x][threadIdx.y];
}
__global__ void product(float* out, const __half* inp) {
  __shared__ __half rows[32][64];
  const int lane = threadIdx.x;
  cp_async_16(rows[lane], inp + 8 * lane);
  cp_async_commit();
  cp_async_wait<0>();
  __syncthreads();
  uint32_t a[4];
  ldmatrix_x4(a, rows[lane]);  // rows of 128 bytes begin in the same bank
  float d[4]{};
  mma_m16n8k16<__half>(d, a, a[0], a[1]);
  out[lane] = __shfl_xor_sync(~0u, d[0], 1);
}

int main() {
  float *out, *inp;
  cudaMalloc(&out, 1024 * sizeof(float));
  cudaMalloc(&inp, 1024 * sizeof(float));
  cudaMemset(inp, 0, 1024 * sizeof(float));
  strided<<<1, 32>>>(out, inp);
  misplaced<<<9, 32>>>(out, inp);
  broadcast<<<1, 32>>>(out, inp);
  half_of_the_lanes<<<1, 32>>>(out, inp);
  transpose<32><<<1, dim3(32, 32)>>>(out, inp);
  transpose<33><<<1, dim3(32, 32)>>>(out, inp);
  product<<<1, 32>>>(out, (const __half*)inp);
  cudaDeviceSynchronize();
}

// Matrix product, rung 6: mma, the tensor cores' instruction.
// A warp's mma multiplies 16x16 by 16x8 numbers of 16 bits and adds the 2048 products in fp32: one
// instruction instead of 64. Its operands are spread over the lanes' registers in a fixed layout,
// and ldmatrix loads four 8x8 matrices from shared memory into that layout: lane i passes the
// address of a row of 16 bytes. The swizzle puts the 8 rows of a matrix into different banks.
// 16-bit numbers also halve the bytes, and the limit is the L2 cache again.
#include "kernels/cuda/ptx.cuh"
#include "learn/learn.h"

using bv::BAREVISION_GPU::ldmatrix_x4;
using bv::BAREVISION_GPU::mma_m16n8k16;
using bf16 = __nv_bfloat16;

constexpr int N = 128, K = 512;  // and M rows: a 1x1 convolution of ResNet-50, batch 256
constexpr int tile = 64, depth = 32, threads = 128;  // 4 warps of 32x32
constexpr int chunks = depth / 8;                    // of 16 bytes, in a tile's row

// Index in the tile of chunk `chunk` of row `row`.
__device__ int swizzled(int row, int chunk) { return row * chunks + (chunk ^ row / 2 % chunks); }

// a [M, K], b [N, K], c [M, N]; M and N are multiples of the tile, K of the depth
__global__ void matmul(const uint4* a, const uint4* b, bf16* c) {
  __shared__ uint4 a_tile[tile * chunks], b_tile[tile * chunks];
  const int t = threadIdx.x, lane = t % 32, warp = t / 32;
  const int row = blockIdx.y * tile, column = blockIdx.x * tile;
  const int y = warp / 2 * 32, x = warp % 2 * 32;  // the warp's part of the tile
  float sum[2][4][4] = {};                         // 2 x 4 fragments of 16x8 elements
  for (int first = 0; first < K / 8; first += chunks) {
    for (int i = t; i < tile * chunks; i += threads) {
      a_tile[swizzled(i / chunks, i % chunks)] =
          a[(row + i / chunks) * (K / 8) + first + i % chunks];
      b_tile[swizzled(i / chunks, i % chunks)] =
          b[(column + i / chunks) * (K / 8) + first + i % chunks];
    }
    __syncthreads();
    for (int k = 0; k < chunks; k += 2) {  // 16 deep
      uint32_t a_part[2][4], b_part[2][4];
      for (int i = 0; i < 2; ++i) {
        ldmatrix_x4(a_part[i], &a_tile[swizzled(y + i * 16 + lane % 16, k + lane / 16)]);
        ldmatrix_x4(b_part[i],
                    &b_tile[swizzled(x + i * 16 + lane / 16 * 8 + lane % 8, k + lane / 8 % 2)]);
      }
      for (int i = 0; i < 2; ++i)
        for (int j = 0; j < 4; ++j)
          mma_m16n8k16<bf16>(sum[i][j], a_part[i], b_part[j / 2][j % 2 * 2],
                             b_part[j / 2][j % 2 * 2 + 1]);
    }
    __syncthreads();
  }
  for (int i = 0; i < 2; ++i)
    for (int j = 0; j < 4; ++j)
      for (int half = 0; half < 2; ++half) {  // a lane holds two neighbours in each of two rows
        const int at_row = row + y + i * 16 + half * 8 + lane / 4;
        const int at_column = column + x + j * 8 + lane % 4 * 2;
        __nv_bfloat162 pair;
        pair.x = __float2bfloat16(sum[i][j][half * 2]);
        pair.y = __float2bfloat16(sum[i][j][half * 2 + 1]);
        *reinterpret_cast<__nv_bfloat162*>(&c[at_row * N + at_column]) = pair;
      }
}

int main() {
  const int M = learn::size(128, 200704);
  const std::vector<float> a = learn::numbers(size_t(M) * K, 1), b = learn::numbers(N * K, 2);
  const std::vector<bf16> a_16 = learn::rounded(a), b_16 = learn::rounded(b);
  std::vector<bf16> c(size_t(M) * N);
  bf16 *gpu_a, *gpu_b, *gpu_c;
  cudaMalloc(&gpu_a, a.size() * sizeof(bf16));
  cudaMalloc(&gpu_b, b.size() * sizeof(bf16));
  cudaMalloc(&gpu_c, c.size() * sizeof(bf16));
  cudaMemcpy(gpu_a, a_16.data(), a.size() * sizeof(bf16), cudaMemcpyHostToDevice);
  cudaMemcpy(gpu_b, b_16.data(), b.size() * sizeof(bf16), cudaMemcpyHostToDevice);

  learn::run([&] {
    matmul<<<dim3(N / tile, M / tile), threads>>>(reinterpret_cast<const uint4*>(gpu_a),
                                                  reinterpret_cast<const uint4*>(gpu_b), gpu_c);
  });

  cudaMemcpy(c.data(), gpu_c, c.size() * sizeof(bf16), cudaMemcpyDeviceToHost);
  const auto expected = [&](size_t i) {
    double sum = 0;
    for (int k = 0; k < K; ++k) sum += double(a[i / N * K + k]) * b[i % N * K + k];
    return sum;
  };
  return learn::finish({.name = "matmul v6: mma, bf16",
                        .earns = "us",
                        .bytes = sizeof(bf16) * double(a.size() + b.size() + c.size()),
                        .flops = 2.0 * c.size() * K,
                        .weights = sizeof(bf16) * double(b.size())},
                       c, 0.15, expected);
}

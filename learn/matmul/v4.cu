// Matrix product, rung 4: a tile in registers.
// Rung 3 reads two numbers from shared memory per product, and shared memory is now the limit. A
// thread that computes 4 rows by 4 columns reads 4 + 4 numbers for 16 products: a quarter. The sums
// stay in 16 registers. Fewer, larger blocks also request less from L2: the tile is 64x64. Bank
// conflicts appear: columns of b 4 apart fall into 8 of the 32 banks, rows of a 4 apart into one.
#include "learn/learn.h"

constexpr int N = 128, K = 512;  // and M rows: a 1x1 convolution of ResNet-50, batch 256
constexpr int tile = 64, depth = 16, own = 4;  // own: rows and columns of a thread
constexpr int side = tile / own, threads = side * side;

// a [M, K], b [K, N], c [M, N]; M and N are multiples of the tile, K of the depth
__global__ void matmul(const float* a, const float* b, float* c) {
  __shared__ float a_tile[tile][depth], b_tile[depth][tile];
  const int t = threadIdx.x, x = t % side * own, y = t / side * own;
  const int row = blockIdx.y * tile, column = blockIdx.x * tile;
  float sum[own][own] = {};
  for (int first = 0; first < K; first += depth) {
    for (int i = t; i < tile * depth; i += threads) {
      a_tile[i / depth][i % depth] = a[(row + i / depth) * K + first + i % depth];
      b_tile[i / tile][i % tile] = b[(first + i / tile) * N + column + i % tile];
    }
    __syncthreads();
    for (int k = 0; k < depth; ++k) {
      float a_own[own], b_own[own];
      for (int i = 0; i < own; ++i) a_own[i] = a_tile[y + i][k], b_own[i] = b_tile[k][x + i];
      for (int i = 0; i < own; ++i)
        for (int j = 0; j < own; ++j) sum[i][j] += a_own[i] * b_own[j];
    }
    __syncthreads();
  }
  for (int i = 0; i < own; ++i)
    for (int j = 0; j < own; ++j) c[(row + y + i) * N + column + x + j] = sum[i][j];
}

int main() {
  const int M = learn::size(128, 200704);
  const std::vector<float> a = learn::numbers(size_t(M) * K, 1), b = learn::numbers(K * N, 2);
  std::vector<float> c(size_t(M) * N);
  float *gpu_a, *gpu_b, *gpu_c;
  cudaMalloc(&gpu_a, a.size() * sizeof(float));
  cudaMalloc(&gpu_b, b.size() * sizeof(float));
  cudaMalloc(&gpu_c, c.size() * sizeof(float));
  cudaMemcpy(gpu_a, a.data(), a.size() * sizeof(float), cudaMemcpyHostToDevice);
  cudaMemcpy(gpu_b, b.data(), b.size() * sizeof(float), cudaMemcpyHostToDevice);

  learn::run([&] { matmul<<<dim3(N / tile, M / tile), threads>>>(gpu_a, gpu_b, gpu_c); });

  cudaMemcpy(c.data(), gpu_c, c.size() * sizeof(float), cudaMemcpyDeviceToHost);
  const auto expected = [&](size_t i) {
    double sum = 0;
    for (int k = 0; k < K; ++k) sum += double(a[i / N * K + k]) * b[k * N + i % N];
    return sum;
  };
  return learn::finish({.name = "matmul v4: register tile",
                        .earns = "us",
                        .bytes = sizeof(float) * double(a.size() + b.size() + c.size()),
                        .flops = 2.0 * c.size() * K,
                        .weights = sizeof(float) * double(b.size())},
                       c, 1e-4, expected);
}

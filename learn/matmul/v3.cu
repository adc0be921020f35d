// Matrix product, rung 3: a tile in shared memory.
// The 1024 threads of a block need the same 32 rows of A and 32 columns of B. Together they copy
// 32x32 of each, one number per thread, to the block's shared memory and read them there: each
// number is requested from the L2 cache once per block instead of once per warp. The barriers keep
// a thread from reading what isn't there yet and from overwriting what others still read.
#include "learn/learn.h"

constexpr int N = 128, K = 512;  // and M rows: a 1x1 convolution of ResNet-50, batch 256
constexpr int tile = 32;

// a [M, K], b [K, N], c [M, N]; M, N and K are multiples of the tile
__global__ void matmul(const float* a, const float* b, float* c) {
  __shared__ float a_tile[tile][tile], b_tile[tile][tile];
  const int x = threadIdx.x, y = threadIdx.y;
  const int row = blockIdx.y * tile + y, column = blockIdx.x * tile + x;
  float sum = 0;
  for (int first = 0; first < K; first += tile) {
    a_tile[y][x] = a[row * K + first + x];
    b_tile[y][x] = b[(first + y) * N + column];
    __syncthreads();  // both tiles are complete
    for (int k = 0; k < tile; ++k) sum += a_tile[y][k] * b_tile[k][x];
    __syncthreads();  // all threads have read them
  }
  c[row * N + column] = sum;
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

  learn::run([&] { matmul<<<dim3(N / tile, M / tile), dim3(tile, tile)>>>(gpu_a, gpu_b, gpu_c); });

  cudaMemcpy(c.data(), gpu_c, c.size() * sizeof(float), cudaMemcpyDeviceToHost);
  const auto expected = [&](size_t i) {
    double sum = 0;
    for (int k = 0; k < K; ++k) sum += double(a[i / N * K + k]) * b[k * N + i % N];
    return sum;
  };
  return learn::finish({.name = "matmul v3: shared tile",
                        .earns = "us",
                        .bytes = sizeof(float) * double(a.size() + b.size() + c.size()),
                        .flops = 2.0 * c.size() * K,
                        .weights = sizeof(float) * double(b.size())},
                       c, 1e-4, expected);
}

// Matrix product, rung 1: one thread per element of C = A B.
// A thread reads a row of A and a column of B and adds up K products. Rows are assigned along
// threadIdx.x, so the 32 threads of a warp, which load together, read 32 different rows of A:
// 32 sectors of 32 bytes for 32 numbers of 4 bytes. C is written the same way.
#include "learn/learn.h"

constexpr int N = 128, K = 512;  // and M rows: a 1x1 convolution of ResNet-50, batch 256

// a [M, K], b [K, N], c [M, N]
__global__ void matmul(const float* a, const float* b, float* c, int M) {
  const int row = blockIdx.x * blockDim.x + threadIdx.x;
  const int column = blockIdx.y * blockDim.y + threadIdx.y;
  if (row >= M) return;
  float sum = 0;
  for (int k = 0; k < K; ++k) sum += a[row * K + k] * b[k * N + column];
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

  learn::run([&] { matmul<<<dim3((M + 31) / 32, N / 8), dim3(32, 8)>>>(gpu_a, gpu_b, gpu_c, M); });

  cudaMemcpy(c.data(), gpu_c, c.size() * sizeof(float), cudaMemcpyDeviceToHost);
  const auto expected = [&](size_t i) {
    double sum = 0;
    for (int k = 0; k < K; ++k) sum += double(a[i / N * K + k]) * b[k * N + i % N];
    return sum;
  };
  return learn::finish({.name = "matmul v1: naive",
                        .earns = "-",
                        .bytes = sizeof(float) * double(a.size() + b.size() + c.size()),
                        .flops = 2.0 * c.size() * K,
                        .weights = sizeof(float) * double(b.size())},
                       c, 1e-4, expected);
}

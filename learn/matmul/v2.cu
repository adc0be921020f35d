// Matrix product, rung 2: neighbouring threads compute neighbouring columns.
// The same loop, with threadIdx.x along the columns instead of the rows. Now a warp reads one
// number of A, which all its threads share, and 32 neighbours of B, 4 sectors, and writes 32
// neighbours of C. Nothing else has changed: where a warp's addresses lie is worth a factor of 6.
#include "learn/learn.h"

constexpr int N = 128, K = 512;  // and M rows: a 1x1 convolution of ResNet-50, batch 256

// a [M, K], b [K, N], c [M, N]
__global__ void matmul(const float* a, const float* b, float* c, int M) {
  const int column = blockIdx.x * blockDim.x + threadIdx.x;
  const int row = blockIdx.y * blockDim.y + threadIdx.y;
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

  learn::run([&] { matmul<<<dim3(N / 32, (M + 7) / 8), dim3(32, 8)>>>(gpu_a, gpu_b, gpu_c, M); });

  cudaMemcpy(c.data(), gpu_c, c.size() * sizeof(float), cudaMemcpyDeviceToHost);
  const auto expected = [&](size_t i) {
    double sum = 0;
    for (int k = 0; k < K; ++k) sum += double(a[i / N * K + k]) * b[k * N + i % N];
    return sum;
  };
  return learn::finish({.name = "matmul v2: coalesced",
                        .earns = "us",
                        .bytes = sizeof(float) * double(a.size() + b.size() + c.size()),
                        .flops = 2.0 * c.size() * K,
                        .weights = sizeof(float) * double(b.size())},
                       c, 1e-4, expected);
}

// Attention, rung 1: three kernels and the whole matrix.
//   scores = q k^T / sqrt(D),   p = softmax(scores) along the keys,   out = p v,   for each head
// One kernel per formula, and between them N x N numbers per head in memory, written twice and read
// twice: at 197 tokens three times the bytes of qkv and out. In the first kernel, each lane also
// reads a different key, so that each of these loads touches 32 sectors.
#include "learn/learn.h"

constexpr int N = 197, H = 3, D = 64;  // tokens, heads, channels of a head: ViT-Tiny's
constexpr int row = 3 * H * D;         // from one token to the next in qkv
constexpr float scale = .125f;         // 1 / sqrt(D)

__device__ float sum_of_warp(float x) {
  for (int bit = 16; bit; bit /= 2) x += __shfl_xor_sync(~0u, x, bit);
  return x;
}

// scores [B * H, N, N], qkv [B, N, 3, H, D]: one thread per element
__global__ void products(float* scores, const float* qkv) {
  const int key = blockIdx.x * blockDim.x + threadIdx.x, query = blockIdx.y, head = blockIdx.z;
  if (key >= N) return;
  const float* q = qkv + size_t(head / H) * N * row + head % H * D;
  const float* k = q + H * D;
  float sum = 0;
  for (int d = 0; d < D; ++d) sum += q[query * row + d] * k[key * row + d];
  scores[(size_t(head) * N + query) * N + key] = sum * scale;
}

// in place: one warp per row
__global__ void softmax(float* scores) {
  float* x = scores + size_t(blockIdx.x) * N;
  float sum = 0;  // these scores are small; v2 subtracts the maximum, as large ones require
  for (int key = threadIdx.x; key < N; key += 32) sum += expf(x[key]);
  sum = sum_of_warp(sum);
  for (int key = threadIdx.x; key < N; key += 32) x[key] = expf(x[key]) / sum;
}

// out [B, N, H, D]: one thread per element
__global__ void weighted_values(float* out, const float* p, const float* qkv) {
  const int d = threadIdx.x, query = blockIdx.x, head = blockIdx.y;
  const float* v = qkv + size_t(head / H) * N * row + (2 * H + head % H) * D;
  const float* weights = p + (size_t(head) * N + query) * N;
  float sum = 0;
  for (int key = 0; key < N; ++key) sum += weights[key] * v[key * row + d];
  out[((head / H) * N + query) * H * D + head % H * D + d] = sum;
}

int main() {
  const int B = learn::size(1, 256);
  const std::vector<float> qkv = learn::numbers(size_t(B) * N * row, 1);  // [B, N, 3, H, D]
  std::vector<float> out(size_t(B) * N * H * D);                          // [B, N, H, D]
  float *gpu_out, *gpu_qkv;
  float* gpu_scores;
  cudaMalloc(&gpu_out, out.size() * sizeof(float));
  cudaMalloc(&gpu_qkv, qkv.size() * sizeof(float));
  cudaMalloc(&gpu_scores, size_t(B) * H * N * N * sizeof(float));
  cudaMemcpy(gpu_qkv, qkv.data(), qkv.size() * sizeof(float), cudaMemcpyHostToDevice);

  learn::run([&] {
    products<<<dim3((N + 63) / 64, N, B * H), 64>>>(gpu_scores, gpu_qkv);
    softmax<<<B * H * N, 32>>>(gpu_scores);
    weighted_values<<<dim3(N, B * H), D>>>(gpu_out, gpu_scores, gpu_qkv);
  });

  cudaMemcpy(out.data(), gpu_out, out.size() * sizeof(float), cudaMemcpyDeviceToHost);
  std::vector<double> out_expected(size_t(B) * N * H * D);
  std::vector<double> p(N);
  for (int head = 0; head < B * H; ++head)
    for (int i = 0; i < N; ++i) {
      const float* q = &qkv[size_t(head / H) * N * row + head % H * D];
      const float *k = q + H * D, *v = k + H * D;
      double sum = 0;
      for (int j = 0; j < N; ++j) {
        double dot = 0;
        for (int d = 0; d < D; ++d) dot += double(q[i * row + d]) * k[j * row + d];
        sum += p[j] = std::exp(dot * scale);
      }
      double* to = &out_expected[(size_t(head / H) * N + i) * H * D + head % H * D];
      for (int j = 0; j < N; ++j)
        for (int d = 0; d < D; ++d) to[d] += p[j] / sum * v[j * row + d];
    }
  return learn::finish({.name = "attention v1: three kernels",
                        .earns = "-",
                        .bytes = sizeof(float) * double(qkv.size() + out.size()),
                        .flops = 4.0 * B * H * N * N * D},
                       out, 1e-5, [&](size_t i) { return out_expected[i]; });
}

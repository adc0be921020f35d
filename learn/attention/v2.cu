// Attention, rung 2: online softmax.
// A softmax needs the sum of all exponentials before the first weight is known, but a weighted sum
// doesn't: keep the largest score so far, and the sum and the output relative to it; when a larger
// score arrives, multiply both by exp(old - new). So a warp goes through the keys once for its
// query, with the 64 channels spread over its lanes, and never writes a score: the matrix is gone.
#include "learn/learn.h"

constexpr int N = 197, H = 3, D = 64;  // tokens, heads, channels of a head: ViT-Tiny's
constexpr int row = 3 * H * D;         // from one token to the next in qkv
constexpr float scale = .125f;         // 1 / sqrt(D)

__device__ float sum_of_warp(float x) {
  for (int bit = 16; bit; bit /= 2) x += __shfl_xor_sync(~0u, x, bit);
  return x;
}

constexpr int warps = 4;

// out [B, N, H, D], qkv [B, N, 3, H, D]: one warp per query, two channels per lane
__global__ void attention(float* out, const float* qkv) {
  const int query = blockIdx.x * warps + threadIdx.x / 32, head = blockIdx.y;
  if (query >= N) return;  // the whole warp
  const int first = size_t(head / H) * N * row + head % H * D + threadIdx.x % 32 * 2;
  const float2 q = *(const float2*)&qkv[first + query * row];
  float row_max = -INFINITY, row_sum = 0;
  float2 sum{};
  for (int key = 0; key < N; ++key) {
    const float2 k = *(const float2*)&qkv[first + H * D + key * row];
    const float2 v = *(const float2*)&qkv[first + 2 * H * D + key * row];
    const float score = sum_of_warp(q.x * k.x + q.y * k.y) * scale;
    const float new_max = fmaxf(row_max, score);
    const float shrink = expf(row_max - new_max), weight = expf(score - new_max);
    row_max = new_max;
    row_sum = row_sum * shrink + weight;
    sum.x = sum.x * shrink + weight * v.x;
    sum.y = sum.y * shrink + weight * v.y;
  }
  float* to = out + (size_t(head / H) * N + query) * H * D + head % H * D + threadIdx.x % 32 * 2;
  to[0] = sum.x / row_sum, to[1] = sum.y / row_sum;
}

int main() {
  const int B = learn::size(1, 256);
  const std::vector<float> qkv = learn::numbers(size_t(B) * N * row, 1);  // [B, N, 3, H, D]
  std::vector<float> out(size_t(B) * N * H * D);                          // [B, N, H, D]
  float *gpu_out, *gpu_qkv;
  cudaMalloc(&gpu_out, out.size() * sizeof(float));
  cudaMalloc(&gpu_qkv, qkv.size() * sizeof(float));
  cudaMemcpy(gpu_qkv, qkv.data(), qkv.size() * sizeof(float), cudaMemcpyHostToDevice);

  learn::run(
      [&] { attention<<<dim3((N + warps - 1) / warps, B * H), warps * 32>>>(gpu_out, gpu_qkv); });

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
  return learn::finish({.name = "attention v2: online softmax",
                        .earns = "us",
                        .bytes = sizeof(float) * double(qkv.size() + out.size()),
                        .flops = 4.0 * B * H * N * N * D},
                       out, 1e-5, [&](size_t i) { return out_expected[i]; });
}

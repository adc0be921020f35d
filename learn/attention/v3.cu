// Attention, rung 3: tiles.
// Each warp of rung 2 reads all keys and values for one query. Here a block takes 32 queries and
// goes through the keys 32 at a time, copying them to shared memory once for all its queries. A
// thread computes 8 scores of a query and later 16 channels of its output; 4 neighbouring threads
// share a query and its maximum. The running sums are rescaled once per tile, not once per key.
#include "learn/learn.h"

constexpr int N = 197, H = 3, D = 64;  // tokens, heads, channels of a head: ViT-Tiny's
constexpr int row = 3 * H * D;         // from one token to the next in qkv
constexpr float scale = .125f;         // 1 / sqrt(D)

constexpr int tile = 32, threads = 128, sharers = threads / tile;  // sharers: threads per query
constexpr int own_keys = tile / sharers, own_channels = D / sharers, padded = D + 4;

// Reductions over the threads that share a query.
__device__ float sum_of_query(float x) {
  for (int bit = sharers / 2; bit; bit /= 2) x += __shfl_xor_sync(~0u, x, bit);
  return x;
}
__device__ float max_of_query(float x) {
  for (int bit = sharers / 2; bit; bit /= 2) x = fmaxf(x, __shfl_xor_sync(~0u, x, bit));
  return x;
}

// out [B, N, H, D], qkv [B, N, 3, H, D]
__global__ void attention(float* out, const float* qkv) {
  __shared__ float q[tile][padded], k[tile][padded], v[tile][padded], p[tile][tile + 1];
  const int t = threadIdx.x, own = t / sharers, part = t % sharers, query = blockIdx.x * tile;
  const int head = blockIdx.y;
  const float* from = qkv + size_t(head / H) * N * row + head % H * D;
  for (int i = t; i < tile * D; i += threads)
    q[i / D][i % D] = query + i / D < N ? from[(query + i / D) * row + i % D] * scale : 0;
  float row_max = -INFINITY, row_sum = 0, sum[own_channels] = {};
  for (int first = 0; first < N; first += tile) {
    __syncthreads();  // all threads have read the previous tile
    for (int i = t; i < tile * D; i += threads) {
      const bool inside = first + i / D < N;
      const int at = inside ? (first + i / D) * row + i % D : 0;
      k[i / D][i % D] = from[H * D + at];
      v[i / D][i % D] = inside ? from[2 * H * D + at] : 0;
    }
    __syncthreads();
    float score[own_keys] = {}, tile_max = row_max, tile_sum = 0;
    for (int d = 0; d < D; ++d)
      for (int j = 0; j < own_keys; ++j) score[j] += q[own][d] * k[j * sharers + part][d];
    for (int j = 0; j < own_keys; ++j) {
      if (first + j * sharers + part >= N) score[j] = -INFINITY;  // past the last key
      tile_max = fmaxf(tile_max, score[j]);
    }
    tile_max = max_of_query(tile_max);
    for (int j = 0; j < own_keys; ++j)
      tile_sum += p[own][j * sharers + part] = expf(score[j] - tile_max);
    const float shrink = expf(row_max - tile_max);
    row_max = tile_max;
    row_sum = row_sum * shrink + sum_of_query(tile_sum);
    __syncwarp();  // a query's weights are written by 4 lanes of the warp and read by all of them
    for (float& x : sum) x *= shrink;
    for (int key = 0; key < tile; ++key)
      for (int d = 0; d < own_channels; ++d) sum[d] += p[own][key] * v[key][d * sharers + part];
  }
  if (query + own >= N) return;
  float* to = out + (size_t(head / H) * N + query + own) * H * D + head % H * D + part;
  for (int d = 0; d < own_channels; ++d) to[d * sharers] = sum[d] / row_sum;
}

int main() {
  const int B = learn::size(1, 256);
  const std::vector<float> qkv = learn::numbers(size_t(B) * N * row, 1);  // [B, N, 3, H, D]
  std::vector<float> out(size_t(B) * N * H * D);                          // [B, N, H, D]
  float *gpu_out, *gpu_qkv;
  cudaMalloc(&gpu_out, out.size() * sizeof(float));
  cudaMalloc(&gpu_qkv, qkv.size() * sizeof(float));
  cudaMemcpy(gpu_qkv, qkv.data(), qkv.size() * sizeof(float), cudaMemcpyHostToDevice);

  learn::run([&] { attention<<<dim3((N + tile - 1) / tile, B * H), threads>>>(gpu_out, gpu_qkv); });

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
  return learn::finish({.name = "attention v3: tiles",
                        .earns = "us",
                        .bytes = sizeof(float) * double(qkv.size() + out.size()),
                        .flops = 4.0 * B * H * N * N * D},
                       out, 1e-5, [&](size_t i) { return out_expected[i]; });
}

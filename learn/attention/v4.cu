// Attention, rung 4: the shipped forward kernel, on tensor cores in bf16.
// mma computes both products. A warp's registers hold the scores, the first product, in the layout
// that the second needs for its left operand, so the probabilities never leave the registers, not
// even for shared memory. All keys and values of a head fit into shared memory. The kernel also
// stores lse, the log of the sum of exponentials of each row: 4 bytes per query, for backward.
#include <string>

#include "kernels/attention/attention.cu"
#include "learn/learn.h"

using bf16 = __nv_bfloat16;
constexpr int N = 197, H = 3, D = 64;  // tokens, heads, channels of a head: ViT-Tiny's
constexpr int row = 3 * H * D;         // from one token to the next in qkv
constexpr float scale = .125f;         // 1 / sqrt(D)

int main() {
  const int B = learn::size(2, 256);
  const std::vector<float> qkv = learn::numbers(size_t(B) * N * row, 1);  // [B, N, 3, H, D]
  const std::vector<bf16> qkv_16 = learn::rounded(qkv);
  std::vector<bf16> out(size_t(B) * N * H * D);  // [B, N, H, D]
  bf16 *gpu_out, *gpu_qkv;
  float* gpu_lse;
  cudaMalloc(&gpu_out, out.size() * sizeof(bf16));
  cudaMalloc(&gpu_qkv, qkv.size() * sizeof(bf16));
  cudaMalloc(&gpu_lse, size_t(B) * H * N * sizeof(float));
  cudaMemcpy(gpu_qkv, qkv_16.data(), qkv.size() * sizeof(bf16), cudaMemcpyHostToDevice);

  using namespace bv::BAREVISION_GPU;
  const int sms =
      std::max(1, int(132 / learn::enlarged));  // an H100's, scaled down with the problem
  const DeviceProps props{.arch = 80, .sms = sms, .shared_bytes = 163 << 10};
  const bv::AttentionForward op{.out = gpu_out,
                                .lse = gpu_lse,
                                .qkv = gpu_qkv,
                                .shape = {.B = B, .N = N, .H = H, .D = D},
                                .dtype = bv::DType::bf16};
  learn::run([&] { launch_forward<bf16, D, false>(op, props, nullptr); });

  cudaMemcpy(out.data(), gpu_out, out.size() * sizeof(bf16), cudaMemcpyDeviceToHost);
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
  // A backward pass by the formula would need forward's probabilities, in 16 bits.
  const std::string saved = "saved " + std::to_string(2 * size_t(B) * H * N * N);
  return learn::finish({.name = "attention v4: shipped forward, mma",
                        .earns = "us",
                        .bytes = sizeof(bf16) * double(qkv.size() + out.size()),
                        .flops = 4.0 * B * H * N * N * D,
                        .counts = saved.c_str(),
                        .measured = "vit_tiny AttentionForward B256 N197 H3 D64 Q197"},
                       out, 0.02, [&](size_t i) { return out_expected[i]; });
}

// Attention, rung 5: the shipped backward kernel, which recomputes.
// The gradients need the probabilities again, N x N numbers per head that forward didn't write. If
// it saved them, they would be the largest tensor in memory. Recomputed as exp(score - lse), from
// the 4 bytes per row that rung 4 stored, they cost a fifth product, after four for the gradients.
// The bytes saved for backward (this rung's count) fall from the matrix to out and lse.
#include <string>

#include "kernels/attention/attention_backward.cu"
#include "learn/learn.h"

using bf16 = __nv_bfloat16;
constexpr int N = 197, H = 3, D = 64;  // tokens, heads, channels of a head: ViT-Tiny's
constexpr int row = 3 * H * D;         // from one token to the next in qkv
constexpr float scale = .125f;         // 1 / sqrt(D)

int main() {
  const int B = learn::size(2, 256);
  const size_t count = size_t(B) * N * H * D;
  const std::vector<float> qkv = learn::numbers(3 * count, 1);  // [B, N, 3, H, D]
  const std::vector<float> dout = learn::numbers(count, 2);     // [B, N, H, D]
  std::vector<float> out(count), lse(size_t(B) * H * N);        // forward's results
  std::vector<double> expected(3 * count);
  std::vector<double> p(size_t(N) * N);
  for (int head = 0; head < B * H; ++head) {
    const size_t first = size_t(head / H) * N * row + head % H * D;
    const float *q = &qkv[first], *k = q + H * D, *v = k + H * D;
    double *dq = &expected[first], *dk = dq + H * D, *dv = dk + H * D;
    const size_t first_out = size_t(head / H) * N * H * D + head % H * D;
    for (int i = 0; i < N; ++i) {
      double sum = 0, delta = 0;
      for (int j = 0; j < N; ++j) {
        double dot = 0;
        for (int d = 0; d < D; ++d) dot += double(q[i * row + d]) * k[j * row + d];
        sum += p[j] = std::exp(dot * scale);
      }
      lse[size_t(head) * N + i] = float(std::log(sum));
      const float* g = &dout[first_out + i * H * D];
      for (int d = 0; d < D; ++d) {
        double x = 0;
        for (int j = 0; j < N; ++j) x += p[j] / sum * v[j * row + d];
        out[first_out + i * H * D + d] = float(x);
        delta += x * g[d];
      }
      for (int j = 0; j < N; ++j) {
        double dp = 0;
        for (int d = 0; d < D; ++d) dp += double(g[d]) * v[j * row + d];
        const double weight = p[j] / sum, ds = weight * (dp - delta) * scale;
        for (int d = 0; d < D; ++d) {
          dv[j * row + d] += weight * g[d];
          dq[i * row + d] += ds * k[j * row + d];
          dk[j * row + d] += ds * q[i * row + d];
        }
      }
    }
  }

  const std::vector<bf16> qkv_16 = learn::rounded(qkv), dout_16 = learn::rounded(dout),
                          out_16 = learn::rounded(out);
  bf16 *gpu_dqkv, *gpu_qkv, *gpu_dout, *gpu_out;
  float *gpu_lse, *gpu_delta;
  cudaMalloc(&gpu_dqkv, 3 * count * sizeof(bf16));
  cudaMalloc(&gpu_qkv, 3 * count * sizeof(bf16));
  cudaMalloc(&gpu_dout, count * sizeof(bf16));
  cudaMalloc(&gpu_out, count * sizeof(bf16));
  cudaMalloc(&gpu_lse, lse.size() * sizeof(float));
  cudaMalloc(&gpu_delta, lse.size() * sizeof(float));
  cudaMemcpy(gpu_qkv, qkv_16.data(), 3 * count * sizeof(bf16), cudaMemcpyHostToDevice);
  cudaMemcpy(gpu_dout, dout_16.data(), count * sizeof(bf16), cudaMemcpyHostToDevice);
  cudaMemcpy(gpu_out, out_16.data(), count * sizeof(bf16), cudaMemcpyHostToDevice);
  cudaMemcpy(gpu_lse, lse.data(), lse.size() * sizeof(float), cudaMemcpyHostToDevice);

  using namespace bv::BAREVISION_GPU;
  const int sms =
      std::max(1, int(132 / learn::enlarged));  // an H100's, scaled down with the problem
  const DeviceProps props{.arch = 80, .sms = sms, .shared_bytes = 163 << 10};
  const bv::AttentionBackward op{.dqkv = gpu_dqkv,
                                 .workspace = gpu_delta,
                                 .dout = gpu_dout,
                                 .qkv = gpu_qkv,
                                 .out = gpu_out,
                                 .lse = gpu_lse,
                                 .shape = {.B = B, .N = N, .H = H, .D = D},
                                 .dtype = bv::DType::bf16};
  learn::run([&] { launch_backward<bf16, D, false>(op, props, nullptr); });

  std::vector<bf16> dqkv(3 * count);
  cudaMemcpy(dqkv.data(), gpu_dqkv, 3 * count * sizeof(bf16), cudaMemcpyDeviceToHost);
  const std::string saved =
      "saved " + std::to_string(count * sizeof(bf16) + lse.size() * sizeof(float));
  return learn::finish({.name = "attention v5: shipped backward, recomputing",
                        .earns = "saved",
                        .bytes = 8.0 * count * sizeof(bf16) + lse.size() * sizeof(float),
                        .flops = 10.0 * B * H * N * N * D,
                        .counts = saved.c_str(),
                        .measured = "vit_tiny AttentionBackward B256 N197 H3 D64 Q197"},
                       dqkv, 0.05, [&](size_t i) { return expected[i]; });
}

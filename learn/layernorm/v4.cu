// Layer norm, rung 4: the shipped kernel, in bf16.
// Rung 3 moves no byte twice, so the only gain left is smaller numbers: inputs and outputs have 16
// bits, the arithmetic 32. Otherwise it is rung 3 with 8 lanes per row: registers hold the row, an
// access has 16 bytes. It also stores mean and rstd for backward. Half the bytes, half the time.
#include "kernels/layers/layernorm.cu"
#include "learn/learn.h"

namespace gpu = bv::BAREVISION_GPU;
constexpr int C = 192, lanes = 8, columns = 24;  // columns: per lane, in packs of 8

int main() {
  const int rows = learn::size(1024, 50432);  // 50432: ViT-Tiny's tokens, 256 images of 197
  const size_t count = size_t(rows) * C, bytes = count * sizeof(__nv_bfloat16);
  const std::vector<float> inp = learn::numbers(count, 1), weight = learn::numbers(C, 2),
                           bias = learn::numbers(C, 3);
  const std::vector<__nv_bfloat16> inp_16 = learn::rounded(inp);
  __nv_bfloat16 *gpu_out, *gpu_inp;
  float *gpu_mean, *gpu_rstd, *gpu_weight, *gpu_bias;
  cudaMalloc(&gpu_out, bytes);
  cudaMalloc(&gpu_inp, bytes);
  cudaMalloc(&gpu_mean, rows * sizeof(float));
  cudaMalloc(&gpu_rstd, rows * sizeof(float));
  cudaMalloc(&gpu_weight, C * sizeof(float));
  cudaMalloc(&gpu_bias, C * sizeof(float));
  cudaMemcpy(gpu_inp, inp_16.data(), bytes, cudaMemcpyHostToDevice);
  cudaMemcpy(gpu_weight, weight.data(), C * sizeof(float), cudaMemcpyHostToDevice);
  cudaMemcpy(gpu_bias, bias.data(), C * sizeof(float), cudaMemcpyHostToDevice);

  const bv::LayerNormForward op{.out = gpu_out,
                                .mean = gpu_mean,
                                .rstd = gpu_rstd,
                                .inp = gpu_inp,
                                .weight = gpu_weight,
                                .bias = gpu_bias,
                                .shape = {rows, C},
                                .eps = 1e-6f,
                                .dtype = bv::DType::bf16};
  learn::run([&] {  // as CudaKernels::run does at the end of layernorm.cu
    gpu::launch<gpu::layernorm_forward<__nv_bfloat16, lanes, columns>>(
        gpu::ceil_div(rows, gpu::forward_threads / lanes), gpu::forward_threads, 0, nullptr, op,
        1.0f / C);
  });

  std::vector<__nv_bfloat16> out(count);
  cudaMemcpy(out.data(), gpu_out, bytes, cudaMemcpyDeviceToHost);
  const auto expected = [&](size_t i) {
    const float* x = &inp[i / C * C];
    double mean = 0, variance = 0;
    for (int c = 0; c < C; ++c) mean += x[c] / double(C);
    for (int c = 0; c < C; ++c) variance += (x[c] - mean) * (x[c] - mean) / C;
    return (inp[i] - mean) / std::sqrt(variance + 1e-6) * weight[i % C] + bias[i % C];
  };
  return learn::finish({.name = "layernorm v4: shipped, bf16",
                        .earns = "us",
                        .bytes = 2.0 * bytes + 2.0 * rows * sizeof(float),
                        .flops = 8.0 * count,
                        .measured = "vit_tiny LayerNormForward rows50432 C192"},
                       out, 0.02, expected);
}

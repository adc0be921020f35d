// Layer norm, rung 2: one warp per row.
// Neighbouring threads read neighbouring columns, so that a warp's 32 numbers lie in 4 sectors and
// all bytes that move are used. Each lane has a part of the row's sum; five shuffles, in which a
// lane reads a register of the lane whose number differs in one bit, give each lane the whole sum.
// The sectors are now the minimum for three passes over a row.
#include "learn/learn.h"

constexpr int C = 192, threads = 128, lanes = 32, block_rows = threads / lanes;

__device__ float sum_of_warp(float x) {
  for (int bit = lanes / 2; bit; bit /= 2) x += __shfl_xor_sync(~0u, x, bit);
  return x;
}

// out, inp [rows, C]; weight, bias [C]
__global__ void layernorm(float* out, const float* inp, const float* weight, const float* bias,
                          int rows) {
  const int row = blockIdx.x * block_rows + threadIdx.x / lanes, lane = threadIdx.x % lanes;
  if (row >= rows) return;  // the whole warp
  const float* x = inp + row * C;
  float sum = 0;
  for (int c = lane; c < C; c += lanes) sum += x[c];
  const float mean = sum_of_warp(sum) / C;
  float squares = 0;
  for (int c = lane; c < C; c += lanes) squares += (x[c] - mean) * (x[c] - mean);
  const float rstd = rsqrtf(sum_of_warp(squares) / C + 1e-6f);
  for (int c = lane; c < C; c += lanes)
    out[row * C + c] = (x[c] - mean) * rstd * weight[c] + bias[c];
}

int main() {
  const int rows = learn::size(1024, 50432);  // 50432: ViT-Tiny's tokens, 256 images of 197
  const size_t count = size_t(rows) * C, bytes = count * sizeof(float);
  const std::vector<float> inp = learn::numbers(count, 1), weight = learn::numbers(C, 2),
                           bias = learn::numbers(C, 3);
  float *gpu_out, *gpu_inp, *gpu_weight, *gpu_bias;
  cudaMalloc(&gpu_out, bytes);
  cudaMalloc(&gpu_inp, bytes);
  cudaMalloc(&gpu_weight, C * sizeof(float));
  cudaMalloc(&gpu_bias, C * sizeof(float));
  cudaMemcpy(gpu_inp, inp.data(), bytes, cudaMemcpyHostToDevice);
  cudaMemcpy(gpu_weight, weight.data(), C * sizeof(float), cudaMemcpyHostToDevice);
  cudaMemcpy(gpu_bias, bias.data(), C * sizeof(float), cudaMemcpyHostToDevice);

  learn::run([&] {
    layernorm<<<(rows + block_rows - 1) / block_rows, threads>>>(gpu_out, gpu_inp, gpu_weight,
                                                                 gpu_bias, rows);
  });

  std::vector<float> out(count);
  cudaMemcpy(out.data(), gpu_out, bytes, cudaMemcpyDeviceToHost);
  const auto expected = [&](size_t i) {
    const float* x = &inp[i / C * C];
    double mean = 0, variance = 0;
    for (int c = 0; c < C; ++c) mean += x[c] / double(C);
    for (int c = 0; c < C; ++c) variance += (x[c] - mean) * (x[c] - mean) / C;
    return (inp[i] - mean) / std::sqrt(variance + 1e-6) * weight[i % C] + bias[i % C];
  };
  return learn::finish({.name = "layernorm v2: one warp per row",
                        .earns = "us",
                        .bytes = 2.0 * bytes,
                        .flops = 8.0 * count},
                       out, 1e-5, expected);
}

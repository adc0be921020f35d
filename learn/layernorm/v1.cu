// Layer norm, rung 1: one thread per row.
// Each row is normalised by its own mean and variance, then scaled and shifted per column. The
// obvious division of the work gives each thread a whole row, as a loop on a CPU would. But the 32
// threads of a warp load together: in each iteration they request 32 numbers that lie a whole row
// apart, in 32 different sectors of 32 bytes. The caches deliver 8 times the bytes that the threads
// use (memory itself doesn't, as long as L2 keeps a sector for the next 7 iterations).
//   make learn TOPIC=layernorm
#include "learn/learn.h"

constexpr int C = 192, threads = 128;

// out, inp [rows, C]; weight, bias [C]
__global__ void layernorm(float* out, const float* inp, const float* weight, const float* bias,
                          int rows) {
  const int row = blockIdx.x * threads + threadIdx.x;
  if (row >= rows) return;
  const float* x = inp + row * C;
  float sum = 0;
  for (int c = 0; c < C; ++c) sum += x[c];
  const float mean = sum / C;
  float squares = 0;
  for (int c = 0; c < C; ++c) squares += (x[c] - mean) * (x[c] - mean);
  const float rstd = rsqrtf(squares / C + 1e-6f);
  for (int c = 0; c < C; ++c) out[row * C + c] = (x[c] - mean) * rstd * weight[c] + bias[c];
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
    layernorm<<<(rows + threads - 1) / threads, threads>>>(gpu_out, gpu_inp, gpu_weight, gpu_bias,
                                                           rows);
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
  return learn::finish({.name = "layernorm v1: one thread per row",
                        .earns = "-",
                        .bytes = 2.0 * bytes,
                        .flops = 8.0 * count},
                       out, 1e-5, expected);
}

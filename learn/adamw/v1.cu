// AdamW, rung 1: one kernel per line of the algorithm.
//   m = beta1 m + (1 - beta1) g,  v = beta2 v + (1 - beta2) g^2,  w -= lr (m^ / sqrt(v^) + decay w)
// There are no sums over elements and hardly any arithmetic: only the bytes count. Kernels read
// again what earlier ones have read or written: the weights are read three times, the gradient and
// the moments twice.
#include "learn/learn.h"

using bf16 = __nv_bfloat16;
constexpr int threads = 256;
constexpr float lr = 1e-3f, beta1 = .9f, beta2 = .999f, eps = 1e-8f, decay = .05f;

__global__ void first_moment(float* m, const float* grad, int count) {
  const int i = blockIdx.x * threads + threadIdx.x;
  if (i < count) m[i] = beta1 * m[i] + (1 - beta1) * grad[i];
}
__global__ void second_moment(float* v, const float* grad, int count) {
  const int i = blockIdx.x * threads + threadIdx.x;
  if (i < count) v[i] = beta2 * v[i] + (1 - beta2) * grad[i] * grad[i];
}
__global__ void decay_weights(float* weight, int count) {
  const int i = blockIdx.x * threads + threadIdx.x;
  if (i < count) weight[i] *= 1 - lr * decay;
}
__global__ void move_weights(float* weight, const float* m, const float* v, float m_scale,
                             float v_scale, int count) {
  const int i = blockIdx.x * threads + threadIdx.x;
  if (i < count) weight[i] -= lr * (m[i] * m_scale) / (sqrtf(v[i] * v_scale) + eps);
}
__global__ void round_weights(bf16* weight_16, const float* weight, int count) {
  const int i = blockIdx.x * threads + threadIdx.x;
  if (i < count) weight_16[i] = __float2bfloat16(weight[i]);
}

int main() {
  const int count = learn::size(1 << 16, 5870912);  // 5870912: ViT-Tiny's parameters
  const size_t bytes = count * sizeof(float);
  const std::vector<float> weight = learn::numbers(count, 1), grad = learn::numbers(count, 2);
  const std::vector<float> m = learn::numbers(count, 3);
  std::vector<float> v = learn::numbers(count, 4);
  for (float& x : v) x = x * x + .01f;
  float *gpu_weight, *gpu_m, *gpu_v, *gpu_grad;
  bf16* gpu_weight_16;
  cudaMalloc(&gpu_weight, bytes);
  cudaMalloc(&gpu_m, bytes);
  cudaMalloc(&gpu_v, bytes);
  cudaMalloc(&gpu_grad, bytes);
  cudaMalloc(&gpu_weight_16, count * sizeof(bf16));
  cudaMemcpy(gpu_weight, weight.data(), bytes, cudaMemcpyHostToDevice);
  cudaMemcpy(gpu_m, m.data(), bytes, cudaMemcpyHostToDevice);
  cudaMemcpy(gpu_v, v.data(), bytes, cudaMemcpyHostToDevice);
  cudaMemcpy(gpu_grad, grad.data(), bytes, cudaMemcpyHostToDevice);

  constexpr int t = 10;  // the step's number
  const auto update = [&] {
    const int blocks = (count + threads - 1) / threads;
    const float m_scale = 1 / (1 - powf(beta1, t)), v_scale = 1 / (1 - powf(beta2, t));
    first_moment<<<blocks, threads>>>(gpu_m, gpu_grad, count);
    second_moment<<<blocks, threads>>>(gpu_v, gpu_grad, count);
    decay_weights<<<blocks, threads>>>(gpu_weight, count);
    move_weights<<<blocks, threads>>>(gpu_weight, gpu_m, gpu_v, m_scale, v_scale, count);
    round_weights<<<blocks, threads>>>(gpu_weight_16, gpu_weight, count);
  };
  update();

  std::vector<float> updated(count);
  std::vector<bf16> updated_16(count);
  cudaMemcpy(updated.data(), gpu_weight, bytes, cudaMemcpyDeviceToHost);
  cudaMemcpy(updated_16.data(), gpu_weight_16, count * sizeof(bf16), cudaMemcpyDeviceToHost);
  for (int i = 0; i < count; ++i)  // the 16-bit copy: its distance from the rounded weight
    updated.push_back(learn::value(updated_16[i]) - learn::value(__float2bfloat16(updated[i])));
  learn::time(update);
  const auto expected = [&](size_t i) {
    if (i >= size_t(count)) return 0.;
    const double m_now = .9 * m[i] + .1 * grad[i], v_now = .999 * v[i] + .001 * grad[i] * grad[i];
    const double m_hat = m_now / (1 - std::pow(.9, t)), v_hat = v_now / (1 - std::pow(.999, t));
    return weight[i] * (1 - 1e-3 * .05) - 1e-3 * m_hat / (std::sqrt(v_hat) + 1e-8);
  };
  return learn::finish({.name = "adamw v1: one kernel per line",
                        .earns = "-",
                        .bytes = 30.0 * count,  // 4 arrays read, 3 and the 16-bit copy written
                        .flops = 15.0 * count},
                       updated, 1e-6, expected);
}

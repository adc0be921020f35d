// AdamW, rung 2: one kernel.
// A thread does the work of all five kernels for its element: each array is read and written at
// most once, and intermediate values stay in registers. 30 bytes per element instead of 54, in one
// launch instead of five.
#include "learn/learn.h"

using bf16 = __nv_bfloat16;
constexpr int threads = 256;
constexpr float lr = 1e-3f, beta1 = .9f, beta2 = .999f, eps = 1e-8f, decay = .05f;

__global__ void adamw(float* weight, bf16* weight_16, float* m, float* v, const float* grad,
                      float m_scale, float v_scale, int count) {
  const int i = blockIdx.x * threads + threadIdx.x;
  if (i >= count) return;
  const float g = grad[i];
  const float m_now = beta1 * m[i] + (1 - beta1) * g, v_now = beta2 * v[i] + (1 - beta2) * g * g;
  const float w =
      weight[i] * (1 - lr * decay) - lr * (m_now * m_scale) / (sqrtf(v_now * v_scale) + eps);
  m[i] = m_now, v[i] = v_now, weight[i] = w;
  weight_16[i] = __float2bfloat16(w);
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
    const float m_scale = 1 / (1 - powf(beta1, t)), v_scale = 1 / (1 - powf(beta2, t));
    adamw<<<(count + threads - 1) / threads, threads>>>(gpu_weight, gpu_weight_16, gpu_m, gpu_v,
                                                        gpu_grad, m_scale, v_scale, count);
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
  return learn::finish({.name = "adamw v2: one kernel",
                        .earns = "us",
                        .bytes = 30.0 * count,  // 4 arrays read, 3 and the 16-bit copy written
                        .flops = 15.0 * count},
                       updated, 1e-6, expected);
}

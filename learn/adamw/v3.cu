// AdamW, rung 3: the shipped kernel, 16 bytes per access.
// It moves as many bytes as rung 2. But a thread updates 4 elements, so it has 4 times the bytes in
// flight, which saturates memory bandwidth, and needs a quarter of the instructions per element.
// The same pass also divides the gradient by the loss scale, clips it, skips a step whose gradient
// overflowed, and applies weight decay per tensor.
#include "kernels/training/optimizer.cu"
#include "learn/learn.h"

using namespace bv::BAREVISION_GPU;
using bf16 = __nv_bfloat16;

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
  const std::vector<uint8_t> decays(count / bv::OptimizerUpdate::decay_chunk, 1);
  const bv::StepParams params{.lr = 1e-3f, .divisor = 1};
  constexpr int t = 10;  // the step's number
  const bv::UpdateState state{.count = t, .grad_divisor = 1, .loss_scale = 1};
  uint8_t* gpu_decays;
  bv::StepParams* gpu_params;
  bv::UpdateState* gpu_state;
  cudaMalloc(&gpu_decays, decays.size());
  cudaMalloc(&gpu_params, sizeof params);
  cudaMalloc(&gpu_state, sizeof state);
  cudaMemcpy(gpu_decays, decays.data(), decays.size(), cudaMemcpyHostToDevice);
  cudaMemcpy(gpu_params, &params, sizeof params, cudaMemcpyHostToDevice);
  cudaMemcpy(gpu_state, &state, sizeof state, cudaMemcpyHostToDevice);
  const bv::OptimizerUpdate op{.weight = gpu_weight,
                               .compute_weights = gpu_weight_16,
                               .m = gpu_m,
                               .v = gpu_v,
                               .state = gpu_state,
                               .grad = gpu_grad,
                               .decay = gpu_decays,
                               .params = gpu_params,
                               .count = size_t(count),
                               .eps = 1e-8f,
                               .weight_decay = .05f,
                               .kind = bv::OptimizerKind::adamw,
                               .dtype = bv::DType::bf16};
  const Betas betas{.9f, .999f, .1f, .001f, logf(.9f), logf(.999f)};

  const auto update = [&] {  // as CudaKernels::run does in optimizer.cu
    launch<optimizer_update<bf16>>(blocks_of(count), threads, 0, nullptr, op, betas);
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
  return learn::finish({.name = "adamw v3: shipped, 16 bytes per access",
                        .earns = "requests",
                        .bytes = 30.0 * count,  // 4 arrays read, 3 and the 16-bit copy written
                        .flops = 15.0 * count,
                        .measured = "vit_tiny OptimizerUpdate adam count5870912"},
                       updated, 1e-6, expected);
}

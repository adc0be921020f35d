// Softmax, its loss and gradient, rung 3: the shipped kernels, in bf16.
// Logits and gradient have 16 bits, 8 elements per access. There are two kernels again, for another
// reason: in a training step the loss belongs to forward and the gradient to backward, and the
// gradient is multiplied by the loss scale, which only the device has. Forward passes 4 bytes per
// row to backward, the log of the sum of exponentials, instead of a matrix. Reading 16-bit logits
// twice moves as many bytes as reading fp32 once, and writing the gradient moves half.
#include "kernels/training/loss.cu"
#include "learn/learn.h"

constexpr int K = 1000;  // classes

int main() {
  using namespace bv::BAREVISION_GPU;
  using bf16 = __nv_bfloat16;
  const int B = learn::size(128, 16384);
  const size_t count = size_t(B) * K, bytes = count * sizeof(bf16);
  const std::vector<float> logits = learn::numbers(count, 1);
  const std::vector<bf16> logits_16 = learn::rounded(logits);
  std::vector<int> labels(B);
  for (int b = 0; b < B; ++b) labels[b] = b * 7 % K;
  const bv::StepParams params{.grad_scale = 1};
  const bv::UpdateState state{.loss_scale = 1};
  float *gpu_loss, *gpu_lse, *gpu_top1;
  bf16 *gpu_dlogits, *gpu_logits;
  int* gpu_labels;
  bv::StepParams* gpu_params;
  bv::UpdateState* gpu_state;
  cudaMalloc(&gpu_loss, B * sizeof(float));
  cudaMalloc(&gpu_lse, B * sizeof(float));
  cudaMalloc(&gpu_top1, B * sizeof(float));
  cudaMalloc(&gpu_dlogits, bytes);
  cudaMalloc(&gpu_logits, bytes);
  cudaMalloc(&gpu_labels, B * sizeof(int));
  cudaMalloc(&gpu_params, sizeof params);
  cudaMalloc(&gpu_state, sizeof state);
  cudaMemcpy(gpu_logits, logits_16.data(), bytes, cudaMemcpyHostToDevice);
  cudaMemcpy(gpu_labels, labels.data(), B * sizeof(int), cudaMemcpyHostToDevice);
  cudaMemcpy(gpu_params, &params, sizeof params, cudaMemcpyHostToDevice);
  cudaMemcpy(gpu_state, &state, sizeof state, cudaMemcpyHostToDevice);

  const bv::CrossEntropyForward forward{.loss = gpu_loss,
                                        .lse = gpu_lse,
                                        .top1 = gpu_top1,
                                        .logits = gpu_logits,
                                        .labels = gpu_labels,
                                        .shape = {B, K},
                                        .dtype = bv::DType::bf16};
  const bv::CrossEntropyBackward backward{.dlogits = gpu_dlogits,
                                          .logits = gpu_logits,
                                          .lse = gpu_lse,
                                          .labels = gpu_labels,
                                          .params = gpu_params,
                                          .state = gpu_state,
                                          .shape = {B, K},
                                          .dtype = bv::DType::bf16};
  constexpr int width = 8;  // elements per access
  learn::run([&] {
    const unsigned blocks = ceil_div(B, block_rows);
    launch<cross_entropy_forward<bf16, width>>(blocks, threads, 0, nullptr, forward);
    launch<cross_entropy_backward<bf16, width>>(blocks, threads, 0, nullptr, backward);
  });

  std::vector<bf16> dlogits(count);
  cudaMemcpy(dlogits.data(), gpu_dlogits, bytes, cudaMemcpyDeviceToHost);
  std::vector<float> results(count + B);  // dlogits, then loss
  for (size_t i = 0; i < count; ++i) results[i] = learn::value(dlogits[i]);
  cudaMemcpy(&results[count], gpu_loss, B * sizeof(float), cudaMemcpyDeviceToHost);
  std::vector<double> lse(B, 0);  // log of the sum of exponentials, of each row
  for (size_t i = 0; i < count; ++i) lse[i / K] += std::exp(double(logits[i]));
  for (double& sum : lse) sum = std::log(sum);
  const auto expected = [&](size_t i) {
    if (i >= count) return lse[i - count] - logits[(i - count) * K + labels[i - count]];
    return std::exp(logits[i] - lse[i / K]) - (int(i % K) == labels[i / K]);
  };
  return learn::finish({.name = "softmax_loss v3: shipped, bf16",
                        .earns = "us",
                        .bytes = 2.0 * bytes + 2.0 * B * sizeof(float),
                        .flops = 6.0 * count},
                       results, 4e-3, expected);
}

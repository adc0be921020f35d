// Softmax, its loss and gradient, rung 1: one kernel per line of the formula.
//   p = softmax(logits),   loss = -log p[label],   dlogits = p - onehot(label)
// The first kernel writes the matrix of probabilities and the third reads it, though it isn't a
// result: twice the necessary bytes move. Each launch costs time, too, however little it does.
// The row's maximum is subtracted first, so that no exponential overflows.
#include "learn/learn.h"

constexpr int K = 1000, threads = 128, lanes = 32, block_rows = threads / lanes;  // K: classes

__device__ float sum_of_warp(float x) {
  for (int bit = lanes / 2; bit; bit /= 2) x += __shfl_xor_sync(~0u, x, bit);
  return x;
}
__device__ float max_of_warp(float x) {
  for (int bit = lanes / 2; bit; bit /= 2) x = fmaxf(x, __shfl_xor_sync(~0u, x, bit));
  return x;
}

// probs, logits [B, K]: one warp per row
__global__ void softmax(float* probs, const float* logits, int B) {
  const int b = blockIdx.x * block_rows + threadIdx.x / lanes, lane = threadIdx.x % lanes;
  if (b >= B) return;  // the whole warp
  const float* x = logits + size_t(b) * K;
  float max = -INFINITY, sum = 0;
  for (int k = lane; k < K; k += lanes) max = fmaxf(max, x[k]);
  max = max_of_warp(max);
  for (int k = lane; k < K; k += lanes) sum += expf(x[k] - max);
  sum = sum_of_warp(sum);
  for (int k = lane; k < K; k += lanes) probs[size_t(b) * K + k] = expf(x[k] - max) / sum;
}

// loss, labels [B]
__global__ void label_loss(float* loss, const float* probs, const int* labels, int B) {
  const int b = blockIdx.x * threads + threadIdx.x;
  if (b < B) loss[b] = -logf(probs[size_t(b) * K + labels[b]]);
}

__global__ void gradient(float* dlogits, const float* probs, const int* labels, int B) {
  const size_t i = size_t(blockIdx.x) * threads + threadIdx.x;
  if (i < size_t(B) * K) dlogits[i] = probs[i] - (int(i % K) == labels[i / K]);
}

int main() {
  const int B = learn::size(128, 16384);
  const size_t count = size_t(B) * K, bytes = count * sizeof(float);
  const std::vector<float> logits = learn::numbers(count, 1);
  std::vector<int> labels(B);
  for (int b = 0; b < B; ++b) labels[b] = b * 7 % K;
  float *gpu_loss, *gpu_dlogits, *gpu_logits;
  float* gpu_probs;
  int* gpu_labels;
  cudaMalloc(&gpu_loss, B * sizeof(float));
  cudaMalloc(&gpu_dlogits, bytes);
  cudaMalloc(&gpu_logits, bytes);
  cudaMalloc(&gpu_probs, bytes);
  cudaMalloc(&gpu_labels, B * sizeof(int));
  cudaMemcpy(gpu_logits, logits.data(), bytes, cudaMemcpyHostToDevice);
  cudaMemcpy(gpu_labels, labels.data(), B * sizeof(int), cudaMemcpyHostToDevice);

  learn::run([&] {
    softmax<<<(B + block_rows - 1) / block_rows, threads>>>(gpu_probs, gpu_logits, B);
    label_loss<<<(B + threads - 1) / threads, threads>>>(gpu_loss, gpu_probs, gpu_labels, B);
    gradient<<<unsigned((count + threads - 1) / threads), threads>>>(gpu_dlogits, gpu_probs,
                                                                     gpu_labels, B);
  });

  std::vector<float> results(count + B);  // dlogits, then loss
  cudaMemcpy(results.data(), gpu_dlogits, bytes, cudaMemcpyDeviceToHost);
  cudaMemcpy(&results[count], gpu_loss, B * sizeof(float), cudaMemcpyDeviceToHost);
  std::vector<double> lse(B, 0);  // log of the sum of exponentials, of each row
  for (size_t i = 0; i < count; ++i) lse[i / K] += std::exp(double(logits[i]));
  for (double& sum : lse) sum = std::log(sum);
  const auto expected = [&](size_t i) {
    if (i >= count) return lse[i - count] - logits[(i - count) * K + labels[i - count]];
    return std::exp(logits[i] - lse[i / K]) - (int(i % K) == labels[i / K]);
  };
  return learn::finish({.name = "softmax_loss v1: one kernel per line",
                        .earns = "-",
                        .bytes = 2.0 * bytes + 2.0 * B * sizeof(float),
                        .flops = 6.0 * count},
                       results, 1e-5, expected);
}

// Matrix product, rung 7: the shipped kernel, a 1x1 convolution with a cp.async pipeline. cp.async
// copies from global to shared memory, not through registers, and doesn't block the thread: while
// one step is multiplied, the copies of the next three are in flight, so their latency is hidden,
// and one barrier per step is enough. On a GPU this is most of the gain; the counters only show
// fewer barriers and a larger tile, 128x128, which requests less from L2. The limit is now memory:
// the bytes that have to move.
#include "kernels/conv/conv_implicit_gemm.cu"
#include "learn/learn.h"

using bf16 = __nv_bfloat16;

constexpr int N = 128, K = 512;  // and M rows: a 1x1 convolution of ResNet-50, batch 256
constexpr int side = 4;          // height and width of the images, whose pixels are the rows

int main() {
  const int M = learn::size(128, 200704);
  const std::vector<float> a = learn::numbers(size_t(M) * K, 1), b = learn::numbers(N * K, 2);
  const std::vector<bf16> a_16 = learn::rounded(a), b_16 = learn::rounded(b);
  std::vector<bf16> c(size_t(M) * N);
  bf16 *gpu_a, *gpu_b, *gpu_c;
  cudaMalloc(&gpu_a, a.size() * sizeof(bf16));
  cudaMalloc(&gpu_b, b.size() * sizeof(bf16));
  cudaMalloc(&gpu_c, c.size() * sizeof(bf16));
  cudaMemcpy(gpu_a, a_16.data(), a.size() * sizeof(bf16), cudaMemcpyHostToDevice);
  cudaMemcpy(gpu_b, b_16.data(), b.size() * sizeof(bf16), cudaMemcpyHostToDevice);

  using namespace bv::BAREVISION_GPU;
  const int sms =
      std::max(1, int(132 / learn::enlarged));  // an H100's, scaled down with the problem
  const DeviceProps props{.arch = 80, .sms = sms, .shared_bytes = 163 << 10};
  const bv::ConvForward op{
      .out = gpu_c,
      .inp = gpu_a,
      .weight = gpu_b,
      .shape =
          {.N = M / side / side, .H = side, .W = side, .C = K, .K = N, .R = 1, .S = 1, .stride = 1},
      .dtype = bv::DType::bf16};
  learn::run([&] { conv_implicit_gemm(props, op, nullptr); });

  cudaMemcpy(c.data(), gpu_c, c.size() * sizeof(bf16), cudaMemcpyDeviceToHost);
  const auto expected = [&](size_t i) {
    double sum = 0;
    for (int k = 0; k < K; ++k) sum += double(a[i / N * K + k]) * b[i % N * K + k];
    return sum;
  };
  return learn::finish({.name = "matmul v7: shipped, cp.async pipeline",
                        .earns = "us",
                        .bytes = sizeof(bf16) * double(a.size() + b.size() + c.size()),
                        .flops = 2.0 * c.size() * K,
                        .weights = sizeof(bf16) * double(b.size()),
                        .measured = "resnet50 ConvForward N256 H28 W28 C512 K128"},
                       c, 0.15, expected);
}

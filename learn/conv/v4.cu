// Convolution, rung 4: the shipped kernel: tensor cores and a pipeline, in bf16.
// mma computes the product for which rung 3 keeps 4x4 sums per thread. The tile is 256 pixels by 64
// channels; cp.async fetches the next three steps while one is multiplied, and itself writes the
// zeros outside the image. A step is 32 channels of one tap; all taps of these channels come before
// the next 32 channels, since neighbouring taps read the same rows. The epilogue stores 16 bytes
// per access.
#include "kernels/conv/conv_implicit_gemm.cu"
#include "learn/learn.h"

using bf16 = __nv_bfloat16;
constexpr int C = 64, K = 64, R = 3;  // channels in and out; the filter's height and width

int main() {
  // A 3x3 convolution of ResNet-50 on 256 images of 56x56; on the stand-in, on one of 16x16.
  const int small = 16 * 16, pixels = learn::size(small, 256 * 56 * 56);
  const int side = pixels == small ? 16 : 56, N = pixels / (side * side);
  const size_t count = size_t(pixels) * C;
  const std::vector<float> inp = learn::numbers(count, 1),
                           weight = learn::numbers(R * R * C * K, 2);
  const std::vector<bf16> inp_16 = learn::rounded(inp), weight_16 = learn::rounded(weight);
  std::vector<bf16> out(size_t(pixels) * K);
  bf16 *gpu_out, *gpu_inp, *gpu_weight;
  cudaMalloc(&gpu_out, out.size() * sizeof(bf16));
  cudaMalloc(&gpu_inp, inp.size() * sizeof(bf16));
  cudaMalloc(&gpu_weight, weight.size() * sizeof(bf16));
  cudaMemcpy(gpu_inp, inp_16.data(), inp.size() * sizeof(bf16), cudaMemcpyHostToDevice);
  cudaMemcpy(gpu_weight, weight_16.data(), weight.size() * sizeof(bf16), cudaMemcpyHostToDevice);

  using namespace bv::BAREVISION_GPU;
  const int sms =
      std::max(1, int(132 / learn::enlarged));  // an H100's, scaled down with the problem
  const DeviceProps props{.arch = 80, .sms = sms, .shared_bytes = 163 << 10};
  const bv::ConvForward op{
      .out = gpu_out,
      .inp = gpu_inp,
      .weight = gpu_weight,
      .shape =
          {.N = N, .H = side, .W = side, .C = C, .K = K, .R = R, .S = R, .stride = 1, .padding = 1},
      .dtype = bv::DType::bf16};
  learn::run([&] { conv_implicit_gemm(props, op, nullptr); });

  cudaMemcpy(out.data(), gpu_out, out.size() * sizeof(bf16), cudaMemcpyDeviceToHost);
  const auto expected = [&](size_t i) {
    const int k = int(i % K), pixel = int(i / K), x = pixel % side, y = pixel / side % side;
    double sum = 0;
    for (int tap = 0; tap < R * R; ++tap) {
      const int down = tap / R - 1, right = tap % R - 1;
      if (y + down < 0 || y + down >= side || x + right < 0 || x + right >= side) continue;
      const float* from = &inp[size_t(pixel + down * side + right) * C];
      for (int c = 0; c < C; ++c) sum += double(from[c]) * weight[(k * R * R + tap) * C + c];
    }
    return sum;
  };
  return learn::finish({.name = "conv v4: shipped, mma, bf16",
                        .earns = "us",
                        .bytes = sizeof(bf16) * double(inp.size() + weight.size() + out.size()),
                        .flops = 2.0 * out.size() * R * R * C,
                        .weights = sizeof(bf16) * double(weight.size()),
                        .measured = "resnet50 ConvForward N256 H56 W56 C64 K64 R3 S3"},
                       out, 0.2, expected);
}

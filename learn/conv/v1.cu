// Convolution, rung 1: direct, one thread per element of out.
//   out[n,y,x,k] = sum over the 3x3 taps and c of inp[n, y + r - 1, x + s - 1, c] weight[r,s,c,k]
// Channels are last in memory, so a warp reads 32 neighbours of the weight and one number of the
// image, which its lanes share: coalesced, but two requests per product. Each number of the image
// is used for 9 taps times 64 channels of out, and a thread loads it from global memory each time.
#include "learn/learn.h"

constexpr int C = 64, K = 64, R = 3;  // channels in and out; the filter's height and width
constexpr int block_pixels = 4;

// out [N, side, side, K], inp [N, side, side, C], weight [R, R, C, K]
__global__ void conv(float* out, const float* inp, const float* weight, int side) {
  const int k = threadIdx.x, pixel = blockIdx.x * block_pixels + threadIdx.y;
  const int x = pixel % side, y = pixel / side % side;
  float sum = 0;
  for (int tap = 0; tap < R * R; ++tap) {
    const int down = tap / R - 1, right = tap % R - 1;
    if (y + down < 0 || y + down >= side || x + right < 0 || x + right >= side) continue;
    const float* from = inp + (pixel + down * side + right) * C;
    for (int c = 0; c < C; ++c) sum += from[c] * weight[(tap * C + c) * K + k];
  }
  out[pixel * K + k] = sum;
}

int main() {
  // A 3x3 convolution of ResNet-50 on 256 images of 56x56; on the stand-in, on one of 16x16.
  const int small = 16 * 16, pixels = learn::size(small, 256 * 56 * 56);
  const int side = pixels == small ? 16 : 56, N = pixels / (side * side);
  const size_t count = size_t(pixels) * C;
  const std::vector<float> inp = learn::numbers(count, 1),
                           weight = learn::numbers(R * R * C * K, 2);
  std::vector<float> out(size_t(pixels) * K);
  float *gpu_out, *gpu_inp, *gpu_weight;
  cudaMalloc(&gpu_out, out.size() * sizeof(float));
  cudaMalloc(&gpu_inp, inp.size() * sizeof(float));
  cudaMalloc(&gpu_weight, weight.size() * sizeof(float));
  cudaMemcpy(gpu_inp, inp.data(), inp.size() * sizeof(float), cudaMemcpyHostToDevice);
  cudaMemcpy(gpu_weight, weight.data(), weight.size() * sizeof(float), cudaMemcpyHostToDevice);

  learn::run([&] {
    conv<<<N * side * side / block_pixels, dim3(K, block_pixels)>>>(gpu_out, gpu_inp, gpu_weight,
                                                                    side);
  });

  cudaMemcpy(out.data(), gpu_out, out.size() * sizeof(float), cudaMemcpyDeviceToHost);
  const auto expected = [&](size_t i) {
    const int k = int(i % K), pixel = int(i / K), x = pixel % side, y = pixel / side % side;
    double sum = 0;
    for (int tap = 0; tap < R * R; ++tap) {
      const int down = tap / R - 1, right = tap % R - 1;
      if (y + down < 0 || y + down >= side || x + right < 0 || x + right >= side) continue;
      const float* from = &inp[size_t(pixel + down * side + right) * C];
      for (int c = 0; c < C; ++c) sum += double(from[c]) * weight[(tap * C + c) * K + k];
    }
    return sum;
  };
  return learn::finish({.name = "conv v1: direct",
                        .earns = "-",
                        .bytes = sizeof(float) * double(inp.size() + weight.size() + out.size()),
                        .flops = 2.0 * out.size() * R * R * C,
                        .weights = sizeof(float) * double(weight.size())},
                       out, 1e-4, expected);
}

// Convolution, rung 2: tiled.
// Neighbouring pixels share most of their taps: 8x8 pixels of out read 10x10 pixels of the image,
// not 9 x 64. A block copies that patch and the weights to shared memory, 16 channels at a time;
// each thread computes 16 pixels of one channel, so that a weight is read once for 16 products. The
// L2 cache gets far fewer requests; shared memory becomes the limit.
#include "learn/learn.h"

constexpr int C = 64, K = 64, R = 3;  // channels in and out; the filter's height and width
constexpr int tile = 8, patch = tile + R - 1, depth = 16, own = 16;  // own: pixels of a thread
constexpr int threads = K * tile * tile / own;

// out [N, side, side, K], inp [N, side, side, C], weight [R, R, C, K]; side is a multiple of the
// tile
__global__ void conv(float* out, const float* inp, const float* weight, int side) {
  __shared__ float image[patch * patch][depth], filter[R * R][depth][K];
  const int t = threadIdx.x, k = t % K, first_row = t / K * (own / tile);
  const int left = blockIdx.x * tile, top = blockIdx.y * tile;
  const float* from = inp + size_t(blockIdx.z) * side * side * C;
  float sum[own] = {};
  for (int first = 0; first < C; first += depth) {
    for (int i = t; i < patch * patch * depth; i += threads) {
      const int y = top + i / depth / patch - 1, x = left + i / depth % patch - 1;
      const bool inside = y >= 0 && y < side && x >= 0 && x < side;
      image[i / depth][i % depth] = inside ? from[(y * side + x) * C + first + i % depth] : 0;
    }
    for (int i = t; i < R * R * depth * K; i += threads)
      filter[i / K / depth][i / K % depth][i % K] =
          weight[(i / K / depth * C + first + i / K % depth) * K + i % K];
    __syncthreads();
    for (int tap = 0; tap < R * R; ++tap)
      for (int c = 0; c < depth; ++c) {
        const float w = filter[tap][c][k];
        for (int i = 0; i < own; ++i)
          sum[i] += w * image[(first_row + i / tile + tap / R) * patch + i % tile + tap % R][c];
      }
    __syncthreads();
  }
  for (int i = 0; i < own; ++i) {
    const int y = top + first_row + i / tile, x = left + i % tile;
    out[((size_t(blockIdx.z) * side + y) * side + x) * K + k] = sum[i];
  }
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
    conv<<<dim3(side / tile, side / tile, N), threads>>>(gpu_out, gpu_inp, gpu_weight, side);
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
  return learn::finish({.name = "conv v2: tiled",
                        .earns = "us",
                        .bytes = sizeof(float) * double(inp.size() + weight.size() + out.size()),
                        .flops = 2.0 * out.size() * R * R * C,
                        .weights = sizeof(float) * double(weight.size())},
                       out, 1e-4, expected);
}

// Convolution, rung 3: an implicit matrix product.
// With a row per pixel and a column per tap and channel, the image becomes a matrix, and the
// convolution is a plain product with it, to which all of matmul/ applies: 64x64 tiles, 4x4 sums in
// registers, 16-byte accesses, the swizzle. That matrix would be 9 times the image, but it is never
// written: the thread that copies a part of it into the tile computes where that part comes from,
// the pixel shifted by the tap, or writes a zero outside the image.
#include "learn/learn.h"

constexpr int C = 64, K = 64, R = 3;           // channels in and out; the filter's height and width
constexpr int tile = 64, depth = 16, own = 4;  // own: rows and columns of a thread
constexpr int side_threads = tile / own, threads = side_threads * side_threads;
static_assert(K == tile && tile * depth == threads * 4);

struct alignas(16) Row {
  float at[tile];
};
// Column of the image's tile that holds row `row` at depth c.
__device__ int swizzled(int row, int c) { return row ^ c / 4 * 8; }

// out [N, side, side, K], inp [N, side, side, C], weight [R, R, C, K]; pixels fill whole tiles
__global__ void conv(float* out, const float* inp, const float* weight, int side) {
  __shared__ Row image[depth], filter[depth];
  const int t = threadIdx.x, column = t % side_threads * own, row = t / side_threads * own;
  const int from_row = t / (depth / 4), from_c = t % (depth / 4) * 4;  // this thread copies these
  const int pixel = blockIdx.x * tile + from_row, x = pixel % side, y = pixel / side % side;
  float sum[own][own] = {};
  for (int step = 0; step < R * R * C / depth; ++step) {
    const int tap = step * depth / C, c = step * depth % C, down = tap / R - 1, right = tap % R - 1;
    const bool inside = y + down >= 0 && y + down < side && x + right >= 0 && x + right < side;
    float4 four = make_float4(0, 0, 0, 0);
    if (inside) four = *(const float4*)&inp[(pixel + down * side + right) * C + c + from_c];
    const float by_c[4] = {four.x, four.y, four.z, four.w};
    for (int i = 0; i < 4; ++i) image[from_c + i].at[swizzled(from_row, from_c)] = by_c[i];
    *(float4*)&filter[t * 4 / K].at[t * 4 % K] = *(const float4*)&weight[step * depth * K + t * 4];
    __syncthreads();
    for (int i = 0; i < depth; ++i) {
      const float4 a = *(const float4*)&image[i].at[swizzled(row, i)];
      const float4 b = *(const float4*)&filter[i].at[column];
      const float rows[own] = {a.x, a.y, a.z, a.w}, columns[own] = {b.x, b.y, b.z, b.w};
      for (int m = 0; m < own; ++m)
        for (int n = 0; n < own; ++n) sum[m][n] += rows[m] * columns[n];
    }
    __syncthreads();
  }
  for (int i = 0; i < own; ++i)
    *(float4*)&out[(blockIdx.x * tile + row + i) * K + column] =
        make_float4(sum[i][0], sum[i][1], sum[i][2], sum[i][3]);
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

  learn::run(
      [&] { conv<<<N * side * side / tile, threads>>>(gpu_out, gpu_inp, gpu_weight, side); });

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
  return learn::finish({.name = "conv v3: implicit GEMM",
                        .earns = "us",
                        .bytes = sizeof(float) * double(inp.size() + weight.size() + out.size()),
                        .flops = 2.0 * out.size() * R * R * C,
                        .weights = sizeof(float) * double(weight.size())},
                       out, 1e-4, expected);
}

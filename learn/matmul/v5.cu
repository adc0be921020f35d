// Matrix product, rung 5: 16-byte accesses and a swizzle.
// A thread's 4 neighbours are one float4: a quarter of the instructions, and the float4s of 8 lanes
// cover all 32 banks once. For this, A's tile is transposed as it is copied, so that its rows are
// neighbours. Without a swizzle, the 4 lanes that copy the same row of A would store to the same
// bank. The swizzle puts these lanes 8 columns apart, so that each lane of a warp has its own bank.
// (A float4 per lane is 128 words, so 4 turns are the minimum, for 4 times the data.)
#include "learn/learn.h"

constexpr int N = 128, K = 512;  // and M rows: a 1x1 convolution of ResNet-50, batch 256
constexpr int tile = 64, depth = 16, own = 4;  // own: rows and columns of a thread
constexpr int side = tile / own, threads = side * side;
static_assert(tile * depth == threads * 4);  // each thread copies one float4 of each tile

struct alignas(16) Row {
  float at[tile];
};

// Column of A's tile that holds row `row` at depth k.
__device__ int swizzled(int row, int k) { return row ^ k / 4 * 8; }

// a [M, K], b [K, N], c [M, N]; M and N are multiples of the tile, K of the depth
__global__ void matmul(const float* a, const float* b, float* c) {
  __shared__ Row a_tile[depth], b_tile[depth];
  const int t = threadIdx.x, x = t % side * own, y = t / side * own;
  const int row = blockIdx.y * tile, column = blockIdx.x * tile;
  const int a_row = t / (depth / 4), a_k = t % (depth / 4) * 4;  // this thread copies these
  const int b_k = t / (tile / 4), b_column = t % (tile / 4) * 4;
  float sum[own][own] = {};
  for (int first = 0; first < K; first += depth) {
    const float4 from_a = *(const float4*)&a[(row + a_row) * K + first + a_k];
    const float by_k[4] = {from_a.x, from_a.y, from_a.z, from_a.w};
    for (int i = 0; i < 4; ++i) a_tile[a_k + i].at[swizzled(a_row, a_k)] = by_k[i];
    *(float4*)&b_tile[b_k].at[b_column] = *(const float4*)&b[(first + b_k) * N + column + b_column];
    __syncthreads();
    for (int k = 0; k < depth; ++k) {
      const float4 a4 = *(const float4*)&a_tile[k].at[swizzled(y, k)];
      const float4 b4 = *(const float4*)&b_tile[k].at[x];
      const float a_own[own] = {a4.x, a4.y, a4.z, a4.w}, b_own[own] = {b4.x, b4.y, b4.z, b4.w};
      for (int i = 0; i < own; ++i)
        for (int j = 0; j < own; ++j) sum[i][j] += a_own[i] * b_own[j];
    }
    __syncthreads();
  }
  for (int i = 0; i < own; ++i)
    *(float4*)&c[(row + y + i) * N + column + x] =
        make_float4(sum[i][0], sum[i][1], sum[i][2], sum[i][3]);
}

int main() {
  const int M = learn::size(128, 200704);
  const std::vector<float> a = learn::numbers(size_t(M) * K, 1), b = learn::numbers(K * N, 2);
  std::vector<float> c(size_t(M) * N);
  float *gpu_a, *gpu_b, *gpu_c;
  cudaMalloc(&gpu_a, a.size() * sizeof(float));
  cudaMalloc(&gpu_b, b.size() * sizeof(float));
  cudaMalloc(&gpu_c, c.size() * sizeof(float));
  cudaMemcpy(gpu_a, a.data(), a.size() * sizeof(float), cudaMemcpyHostToDevice);
  cudaMemcpy(gpu_b, b.data(), b.size() * sizeof(float), cudaMemcpyHostToDevice);

  learn::run([&] { matmul<<<dim3(N / tile, M / tile), threads>>>(gpu_a, gpu_b, gpu_c); });

  cudaMemcpy(c.data(), gpu_c, c.size() * sizeof(float), cudaMemcpyDeviceToHost);
  const auto expected = [&](size_t i) {
    double sum = 0;
    for (int k = 0; k < K; ++k) sum += double(a[i / N * K + k]) * b[k * N + i % N];
    return sum;
  };
  return learn::finish({.name = "matmul v5: 16-byte loads, swizzle",
                        .earns = "us",
                        .bytes = sizeof(float) * double(a.size() + b.size() + c.size()),
                        .flops = 2.0 * c.size() * K,
                        .weights = sizeof(float) * double(b.size())},
                       c, 1e-4, expected);
}

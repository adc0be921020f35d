// Column sums in two stages (described in column_sums.cuh).
// First stage: a thread sums `width` neighbouring columns (16 bytes, or 1 element if C doesn't
// allow that) over every 32nd row of its block (every 8th with 1 element), four rows in flight.
// Second stage: a block adds up 8 columns (a 32-byte sector) of all partial sums, with up to 64
// groups of threads, so that many threads load even if there are few columns; with many columns, a
// thread adds up all partial sums of 4 columns by itself. Limited by memory bandwidth.
#include <algorithm>

#include "kernels/cuda/column_sums.cuh"

namespace bv::BAREVISION_GPU {
namespace {

template <class T, int width>
__global__ void __launch_bounds__(256)
    column_sums_by_stripes(float* partial, const T* inp, unsigned rows, int C) {
  await_kernel_ahead();
  using S = Stripe<width>;
  constexpr int ahead = 4;
  const int column = S::column();
  float sum[width] = {};
  if (column < C)
    for (unsigned row = S::row(); row < rows; row += ahead * S::step()) {
      Elements<T, width> x[ahead];
#pragma unroll
      for (int k = 0; k < ahead; ++k)
        x[k] = load<width>(inp + size_t(S::row_or(row, k, rows)) * C + column);
#pragma unroll
      for (int k = 0; k < ahead; ++k)
        if (row + k * S::step() < rows)
#pragma unroll
          for (int i = 0; i < width; ++i) sum[i] += to_float(x[k].at[i]);
    }
  S::write_sums(sum, partial + size_t(blockIdx.y) * C, C, shared<typename S::Shared>());
}

// width 1: a block adds few columns, and its groups of `lanes` threads share the partial sums.
// width 4: a block adds many columns, and each thread adds all partial sums of its own columns.
template <int width>
constexpr int lanes = width == 1 ? 8 : 256;
constexpr int finish_threads = 512;
struct FinishShared {
  float sums[finish_threads / warp_size][lanes<1>];
};

// The sum over the groups, in the first group's threads.
__device__ inline float sum_groups(float sum, FinishShared& s) {
#pragma unroll
  for (int bits = lanes<1>; bits < warp_size; bits *= 2) sum += __shfl_xor_sync(~0u, sum, bits);
  const int lane = threadIdx.x % lanes<1>;
  if (threadIdx.x % warp_size < lanes<1>) s.sums[threadIdx.x / warp_size][lane] = sum;
  __syncthreads();
  float total = 0;
  if (threadIdx.x < lanes<1>)
    for (unsigned w = 0; w < blockDim.x / warp_size; ++w) total += s.sums[w][lane];
  return total;
}

template <int width>
__global__ void __launch_bounds__(finish_threads) column_sums_finish(ColumnSums a) {
  await_kernel_ahead();
  const int groups = width == 1 ? blockDim.x / lanes<1> : 1;
  const int group = width == 1 ? threadIdx.x / lanes<1> : 0;
  const int64_t columns = a.C + a.C2;
  const int64_t column = (int64_t{blockIdx.x} * lanes<width> + threadIdx.x % lanes<width>)*width;
  Elements<float, width> sum{};
  if (column < columns) sum = add_blocks<width>(a, column, group, groups);
  if constexpr (width == 1) sum.at[0] = sum_groups(sum.at[0], shared<FinishShared>());
  if (group == 0 && column < columns) store_sums(a, column, sum);
}

constexpr int blocks_per_sm = 8;  // of 256 threads: 32 registers each

}  // namespace

void finish_column_sums(const ColumnSums& a, cudaStream_t stream) {
  constexpr int64_t many = 1 << 14;  // so many columns, four per thread, fill a GPU
  const int64_t columns = a.C + a.C2;
  if (columns >= many && a.C % 4 == 0 && a.C2 % 4 == 0)
    return launch<column_sums_finish<4>>(static_cast<unsigned>(ceil_div(columns, 4 * lanes<4>)),
                                         lanes<4>, 0, stream, a);
  // Enough warps that each thread has two loads, up to the maximum.
  const int warps =
      std::min(ceil_div(a.blocks, 2 * warp_size / lanes<1>), finish_threads / warp_size);
  launch<column_sums_finish<1>>(static_cast<unsigned>(ceil_div(columns, lanes<1>)),
                                warps * warp_size, sizeof(FinishShared), stream, a);
}

size_t column_sums_bytes(const DeviceProps& props, DType dtype, int rows, int C) {
  size_t bytes = 0;
  by_width(dtype, C, [&]<class T, int width>() {
    bytes = sizeof(float) * Stripe<width>::grid(props, blocks_per_sm, rows, C).y * C;
  });
  return bytes;
}

void column_sums(const DeviceProps& props, const MatrixColumnSums& a, cudaStream_t stream) {
  float* partial = static_cast<float*>(a.workspace);
  by_width(a.dtype, a.C, [&]<class T, int width>() {
    using S = Stripe<width>;
    const dim3 grid = S::grid(props, blocks_per_sm, a.rows, a.C);
    launch<column_sums_by_stripes<T, width>>(grid, S::threads, sizeof(typename S::Shared), stream,
                                             partial, static_cast<const T*>(a.inp),
                                             unsigned(a.rows), a.C);
    finish_column_sums({.out = a.out,
                        .partial = partial,
                        .C = a.C,
                        .blocks = int(grid.y),
                        .accumulate = a.accumulate},
                       stream);
  });
}

}  // namespace bv::BAREVISION_GPU

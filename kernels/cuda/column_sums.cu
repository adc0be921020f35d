// Column sums in two stages (column_sums.cuh has the plan).
// First stage: a thread adds `width` neighbouring columns (16 bytes, or 1 element where C does not
// allow that) of every 32nd (8th) row of its block, with four rows in flight.
// Second stage: a block adds 8 columns (a 32-byte sector) of all blocks' sums, by up to 64 groups
// of threads, so that many threads load even where the columns are few. Memory is the limit.
#include <algorithm>

#include "kernels/cuda/column_sums.cuh"

namespace bv::BAREVISION_GPU {
namespace {

template <class T, int width>
__global__ void __launch_bounds__(256)
    column_sums_by_stripes(float* partial, const T* inp, unsigned rows, int C) {
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

// Enough warps that each thread has two loads, up to the maximum.
constexpr int finish_columns = 8, finish_threads = 512;
int finish_warps(int blocks) {
  return std::min(ceil_div(blocks, 2 * warp_size / finish_columns), finish_threads / warp_size);
}
struct FinishShared {
  float sums[finish_threads / warp_size][finish_columns];
};

__global__ void __launch_bounds__(finish_threads) column_sums_finish(ColumnSums a) {
  auto& s = shared<FinishShared>();
  const int groups = blockDim.x / finish_columns;
  const size_t columns = (a.out2 ? 2 : 1) * size_t(a.C);
  const int lane = threadIdx.x % finish_columns;
  const size_t column = size_t(blockIdx.x) * finish_columns + lane;
  float sum = 0;
  if (column < columns)
    for (int b = threadIdx.x / finish_columns; b < a.blocks; b += 4 * groups) {
      float part[4];  // in flight together
#pragma unroll
      for (int k = 0; k < 4; ++k)
        part[k] = b + k * groups < a.blocks ? a.partial[(b + k * groups) * columns + column] : 0;
      sum += (part[0] + part[1]) + (part[2] + part[3]);
    }
#pragma unroll
  for (int bits = finish_columns; bits < warp_size; bits *= 2)
    sum += __shfl_xor_sync(~0u, sum, bits);
  if (threadIdx.x % warp_size < finish_columns) s.sums[threadIdx.x / warp_size][lane] = sum;
  __syncthreads();
  if (threadIdx.x < finish_columns && column < columns) {
    float total = 0;
    for (unsigned w = 0; w < blockDim.x / warp_size; ++w) total += s.sums[w][lane];
    float* to = column < size_t(a.C) ? a.out + column : a.out2 + (column - a.C);
    *to = a.accumulate ? *to + total : total;
  }
}

constexpr int blocks_per_sm = 8;  // of 256 threads: 32 registers each

}  // namespace

void finish_column_sums(const ColumnSums& a, cudaStream_t stream) {
  const size_t columns = (a.out2 ? 2 : 1) * size_t(a.C);
  launch<column_sums_finish>(unsigned(ceil_div(columns, finish_columns)),
                             finish_warps(a.blocks) * warp_size, sizeof(FinishShared), stream, a);
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
                        .blocks = int(grid.y),
                        .C = a.C,
                        .accumulate = a.accumulate},
                       stream);
  });
}

}  // namespace bv::BAREVISION_GPU

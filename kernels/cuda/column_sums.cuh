// Sums over the rows of a matrix [rows, C], for the gradients of weights and biases, in two stages,
// each in a fixed order, so that equal runs give equal bits without atomics. First, a grid that
// depends only on the shape and the chip walks over the rows; each block writes its sums to the
// workspace, partial [blocks, C] in fp32. Then a second launch, finish_column_sums, adds these up;
// if a single block can do so quickly enough, the last one to finish does instead (last_block.cuh).
#pragma once
#include <algorithm>

#include "kernels/cuda/last_block.cuh"
#include "kernels/cuda/reduce.cuh"

namespace bv::BAREVISION_GPU {

// Both stages: out [C] (+)= sum over rows of inp [rows, C] dtype.
struct MatrixColumnSums {
  float* out;       // [C]  = or +=, per accumulate
  void* workspace;  // [column_sums_bytes]
  const void* inp;  // [rows, C] dtype
  int rows, C;
  DType dtype;
  bool accumulate;
};
size_t column_sums_bytes(const DeviceProps&, DType, int rows, int C);
void column_sums(const DeviceProps&, const MatrixColumnSums&, cudaStream_t);

// ---- The second stage ---------------------------------------------------------------------------
// A thread's share: the sums of `width` columns over every step-th block from `first` on.
template <int width>
__device__ Elements<float, width> add_blocks(const ColumnSums& a, int64_t column, int first,
                                             int step) {
  Elements<float, width> sum{};
  for (int b = first; b < a.blocks; b += 4 * step) {
    Elements<float, width> part[4] = {};  // in flight together
#pragma unroll
    for (int k = 0; k < 4; ++k)
      if (b + k * step < a.blocks)
        part[k] = load<width>(a.partial + (b + k * step) * (a.C + a.C2) + column);
#pragma unroll
    for (int i = 0; i < width; ++i)
      sum.at[i] += (part[0].at[i] + part[1].at[i]) + (part[2].at[i] + part[3].at[i]);
  }
  return sum;
}
// out or out2 (+)= the sums of these columns.
template <int width>
__device__ void store_sums(const ColumnSums& a, int64_t column, Elements<float, width> sum) {
  float* const to = column < a.C ? a.out + column : a.out2 + (column - a.C);
  if (a.accumulate) {
    const auto before = load<width>(to);
#pragma unroll
    for (int i = 0; i < width; ++i) sum.at[i] += before.at[i];
  }
  store<width>(to, sum);
}

// ---- The first stage by stripes -----------------------------------------------------------------
// Sums over the rows of a warp, whose lanes with equal lane % `lanes` hold the same n columns. A
// butterfly reduction: in each step a lane exchanges half of its values for half of another lane's.
// At the end, x[0 ...] holds `count` sums, for the columns from the returned index on.
template <int lanes, int n>
struct RowSums {
  static constexpr int count = n * lanes / warp_size;
  static_assert(count * warp_size == n * lanes);

  template <int bits = warp_size / 2, int half = n / 2>
  __device__ static int add(float (&x)[n]) {
    if constexpr (bits < lanes) {
      return 0;
    } else {
      const bool upper = threadIdx.x & bits;
#pragma unroll
      for (int i = 0; i < half; ++i) {
        const float low = x[i], high = x[i + half];
        x[i] = (upper ? high : low) + __shfl_xor_sync(~0u, upper ? low : high, bits);
      }
      return (upper ? half : 0) + add<bits / 2, half / 2>(x);
    }
  }
};

// For kernels whose threads each handle a few columns and access `width` neighbours at a time: a
// block owns a stripe of columns, 128 bytes wide if C allows 16-byte accesses, and every
// gridDim.y-th group of rows. `lanes` threads cover the stripe's width, `rows` rows at a time.
template <int width>
struct Stripe {
  static constexpr int threads = 256, warps = threads / warp_size;
  static constexpr int lanes = width > 1 ? 8 : warp_size;  // across the stripe
  static constexpr int columns = lanes * width;            // of the stripe
  static constexpr int rows = threads / lanes;             // at a time

  // This thread's first column, its first row, and the distance to its next row.
  __device__ static int column() { return (blockIdx.x * lanes + threadIdx.x % lanes) * width; }
  // The channel of the stripe's column c; -1 past the last.
  __device__ static int channel(int c, int C) {
    const int channel = static_cast<int>(blockIdx.x) * columns + c;
    return channel < C ? channel : -1;
  }
  __device__ static unsigned row() { return blockIdx.y * rows + threadIdx.x / lanes; }
  __device__ static unsigned step() { return gridDim.y * rows; }
  // The row to load k steps after `row`, clamped to `row` past the end: an unconditional load needs
  // no registers for a default value.
  __device__ static unsigned row_or(unsigned row, int k, unsigned n_rows) {
    return row + k * step() < n_rows ? row + k * step() : row;
  }

  // (stripes, blocks per stripe): about as many blocks as the chip runs concurrently.
  static dim3 grid(const DeviceProps& props, int blocks_per_sm, int n_rows, int C) {
    const int stripes = ceil_div(C, columns), blocks = props.sms * blocks_per_sm;
    const int max_blocks = ceil_div(n_rows, rows);
    return {unsigned(stripes), unsigned(std::clamp(blocks / stripes, 1, max_blocks))};
  }

  // Sums over the block: all threads put() their `sum`; after a barrier, total() is the sum of the
  // stripe's column threadIdx.x.
  struct Shared {
    float sums[warps][columns];
  };
  __device__ static void put(float (&sum)[width], Shared& s) {
    using Rows = RowSums<lanes, width>;
    const int first = threadIdx.x % lanes * width + Rows::add(sum);
#pragma unroll
    for (int i = 0; i < Rows::count; ++i) s.sums[threadIdx.x / warp_size][first + i] = sum[i];
  }
  __device__ static float total(const Shared& s) {
    float total = 0;
#pragma unroll
    for (int w = 0; w < warps; ++w) total += s.sums[w][threadIdx.x];
    return total;
  }
  // to[column] = the block's sum, for columns below C. `Shared` is free again after the caller's
  // next barrier.
  __device__ static void write_sums(float (&sum)[width], float* to, int C, Shared& s) {
    put(sum, s);
    __syncthreads();
    const int c = blockIdx.x * columns + threadIdx.x;
    if (threadIdx.x < columns && c < C) to[c] = total(s);
  }
};

// Merges the sums of a stripe's blocks, each of which has stored part blockIdx.y.
template <class Kind, int width>
using LastBlockOfStripe =
    LastBlock<Kind, Stripe<width>::threads, Stripe<width>::columns, width == 1 ? 1 : 4>;
template <int width, class Kind>
__device__ void merge_stripes(const Kind& kind, const RowParts& parts,
                              typename LastBlockOfStripe<Kind, width>::Shared& s) {
  LastBlockOfStripe<Kind, width>::run(
      kind, parts, static_cast<int>(blockIdx.y), static_cast<int>(blockIdx.x),
      [&](int c) { return Stripe<width>::channel(c, parts.C); }, s);
}

}  // namespace bv::BAREVISION_GPU

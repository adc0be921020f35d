// Epilogues of Hopper's matrix product (sm90_product.cuh): they store a tile's sums. Each has
//   Shared<tile_m>      a consumer's own part of shared memory; prepare() initialises it
//   Carried<tile_n>     registers that a consumer's threads keep from item to item; zero at first
//   begin()             called by a consumer's threads before they multiply; optional
//   store()             called by the same threads with an item's sums
//   finish()            called by the same threads before they return
//   sums_of_a           whether some items need Sums::a; wants_sums_of_a() then decides per item
//   widest              the most columns of a tile for which registers suffice
//   same_columns        whether all items of a block must have the same columns
//   phases              whether parts of k are phases (Division)
//   in_step<m, n>       without same_columns, or with phases: whether buffers stay in step if a
//                       consumer leaves out a tile m x n, as where its half of an item has no rows
#pragma once
#include "kernels/cuda/column_sums.cuh"
#include "kernels/cuda/plain.cuh"
#include "kernels/gemm/sm90_product.cuh"

namespace bv::BAREVISION_GPU::sm90 {

// ---- Pieces -----------------------------------------------------------------------------------
// 16-bit tiles are stored through shared memory, 64 columns at a time: TMA stores whole rows of
// 128 bytes while the threads write the next piece.
constexpr int piece_columns = 64;
// The parts in which a consumer stores a tile, each of `rows` rows, in two buffers in turn.
template <int tile_m, int tile_n, int rows>
constexpr bool evenly_many = (tile_m / rows) * (tile_n / piece_columns) % 2 == 0;

template <int tile_m>
struct Piece {
  alignas(1024) uint4 at[tile_m * 8];  // [tile_m, 64], swizzled
};

// Row and first column of the pair in a thread's i-th register, for f(m, j, ...) below.
__device__ inline int square_row(int m, int i) {
  return m * wgmma_m + i % 2 * 8 + Sums<64, 64>::row();
}
__device__ inline int square_column(int j, int i) {
  return 8 * (j + i / 2) + Sums<64, 64>::column();
}

// Calls f(m, j, place) for each square of 16 x 16 sums that a warp has in the piece: its 16 of
// the 64 rows from m * 64 on, columns 8 j ... 8 j + 15. `place` is the thread's 16-byte row for
// stmatrix and ldmatrix, whose four registers are pairs of Sums::of[m] from [4 (8 piece + j)] on.
template <int blocks, int tile_m, class F>
__device__ void for_each_square(Piece<tile_m>& piece, F f) {
  const int lane = threadIdx.x % warp_size;
  const int row = threadIdx.x % warpgroup / warp_size * 16 + lane % 16, chunk = lane / 16;
#pragma unroll
  for (int j = 0; j < 8; j += 2)
#pragma unroll
    for (int m = 0; m < blocks; ++m)
      f(m, j, piece.at + (m * 64 + row) * 8 + ((j + chunk) ^ row % 8));
}

__device__ inline void wait_for_consumer(int consumer) { bar_sync(1 + consumer, warpgroup); }
__device__ inline bool first_of_consumer() { return threadIdx.x % warpgroup == 0; }

// Makes the pieces that the consumer's threads have written visible to TMA, which will store them.
__device__ inline void end_of_pieces(int consumer) {
  fence_proxy_async();
  wait_for_consumer(consumer);
}
template <int tile_m>
__device__ void leave(const CUtensorMap& map, Piece<tile_m>& piece, int row, int column) {
  if (!first_of_consumer()) return;
  cp_async_bulk_tensor_store(map, piece.at, {column, row});
  cp_async_bulk_commit_group();
}

// A register's two Ts.
template <class T>
__device__ Elements<float, 2> floats_of(uint32_t pair) {
  Elements<T, 2> x;
  std::memcpy(&x, &pair, sizeof x);
  return {to_float(x.at[0]), to_float(x.at[1])};
}

// In the consumer's first thread, waits until TMA has read all pieces. Then the block may end, and
// after a barrier the pieces may be overwritten.
__device__ inline void wait_for_stores() {
  if (first_of_consumer()) cp_async_bulk_wait_group_read<0>();
}

struct Nothing {};  // for epilogues that carry nothing

// ---- Columns ----------------------------------------------------------------------------------
// Sums over the rows of out. A block's items have the same columns, so a consumer's threads keep
// the sums over their rows in registers from item to item: per piece, the sums of columns
// 8 j + Sums::column() and the next. At the end each block stores its sums, and the last to finish
// of the blocks with the same columns merges their sums in order.
template <int tile_n>
using ColumnSumsOfRows = float[tile_n / piece_columns][16];
constexpr int widest_columns = 128;

// of_warp[c] of each warp = the sum over its rows.
template <int tile_n, int columns>
__device__ void add_rows(ColumnSumsOfRows<tile_n>& sums,
                         float (&of_warp)[warpgroup / warp_size][columns]) {
  static_assert(tile_n <= columns);
  using Rows = RowSums<4, 16>;
  static_assert(Rows::count == 2, "a pair of columns in each lane");
#pragma unroll
  for (int p = 0; p < tile_n / piece_columns; ++p) {
    const int pair = Rows::add(sums[p]) / 2;
    store(of_warp[threadIdx.x % warpgroup / warp_size] + p * piece_columns + pair * 8 +
              threadIdx.x % 4 * 2,
          Elements<float, 2>{sums[p][0], sums[p][1]});
  }
}
template <int columns>
__device__ float over_warps(const float (&of_warp)[warpgroup / warp_size][columns], int c) {
  float sum = 0;
#pragma unroll
  for (const auto& warp : of_warp) sum += warp[c];
  return sum;
}

__device__ inline void wait_for_consumers() { bar_sync(1 + consumers, consumers * warpgroup); }

struct AcrossBlocks {
  float* partial;     // [blocks with the same columns, floats of a Value, N]
  unsigned* arrived;  // [tiles_n] counters, zeros
  int N;

  // Called by all threads of the consumers. mine: the block's value for column c of the tile, c
  // being the thread's index among them. Kind as in LastBlock: a Value of floats, merge() and
  // finish().
  template <int tile_n, class Kind>
  __device__ void merge_blocks(const Kind& kind, const typename Kind::Value& mine,
                               bool& is_last) const {
    constexpr int numbers = sizeof mine / sizeof(float);
    const int tiles = ceil_div(N, tile_n), tile = static_cast<int>(blockIdx.x) % tiles;
    const int blocks = static_cast<int>(gridDim.x) / tiles;
    const int c = static_cast<int>(threadIdx.x) - warpgroup, column = tile * tile_n + c;
    const bool has_column = c < tile_n && column < N;
    const auto each = [&](int block, auto use) {
#pragma unroll
      for (int i = 0; i < numbers; ++i)
        use(partial[(int64_t{block} * numbers + i) * N + column], i);
    };
    float x[numbers];
    std::memcpy(x, &mine, sizeof x);
    if (has_column)
      each(static_cast<int>(blockIdx.x) / tiles, [&](float& to, int i) { to = x[i]; });
    __threadfence();
    wait_for_consumers();
    if (c == 0) is_last = atomicAdd(arrived + tile, 1u) == static_cast<unsigned>(blocks - 1);
    wait_for_consumers();
    if (!is_last) return;
    __threadfence();
    if (c == 0) arrived[tile] = 0;
    if (!has_column) return;
    typename Kind::Value all{};
#pragma unroll 4
    for (int block = 0; block < blocks; ++block) {
      each(block, [&](const float& from, int i) { x[i] = from; });
      typename Kind::Value of_block;
      std::memcpy(&of_block, x, sizeof x);
      merge(all, of_block);
    }
    kind.finish(column, all);
  }
};

// ---- out (+)= sums in fp32 --------------------------------------------------------------------
struct ToFp32 {
  static constexpr bool sums_of_a = true, same_columns = false, phases = false;
  template <int, int>
  static constexpr bool in_step = true;  // has no buffers
  template <int>
  using Carried = Nothing;
  float* out;       // [parts, M, N]
  float* sum_of_a;  // [parts, M] (+)= the sum over k of each of a's rows; or null
  int64_t part;     // floats from one part to the next, in both
  int M, N;
  bool accumulate;

  template <int tile_m>
  struct Shared {
    __device__ void prepare() {}
  };

  __device__ bool wants_sums_of_a(const Item& t) const { return sum_of_a && t.n == 0; }

  template <int tile_m, int tile_n>
  __device__ void store(Sums<tile_m, tile_n>& sums, const Item& t, Nothing&, Shared<tile_m>&, int,
                        int) const {
    const int columns = N - t.n - sums.column();
#pragma unroll
    for (int i = 0; i < 2 * sums.blocks; ++i) {
      const int m = t.m + i / 2 * wgmma_m + i % 2 * 8 + sums.row();
      if (m >= M) continue;
      if (wants_sums_of_a(t) && sums.column() == 0)
        set_or_add(sum_of_a[t.part * part + m], sums.a[i / 2][i % 2 * 2], accumulate);
      float* const x = sums.of[i / 2] + i % 2 * 2;  // x[4 j], x[4 j + 1]: columns 8 j, 8 j + 1
      float* const row = out + t.part * part + int64_t{m} * N + t.n + sums.column();
      if (accumulate)  // a row's loads first: none has to wait for a store
#pragma unroll
        for (int j = 0; j < tile_n / 8; ++j)
          if (8 * j < columns) {
            const auto before = load<2>(row + 8 * j);
            x[4 * j] += before.at[0], x[4 * j + 1] += before.at[1];
          }
#pragma unroll
      for (int j = 0; j < tile_n / 8; ++j)
        if (8 * j < columns)
          bv::BAREVISION_GPU::store(row + 8 * j, Elements<float, 2>{x[4 * j], x[4 * j + 1]});
    }
  }
  template <class Shared>
  __device__ void finish(Nothing&, Shared&, int) const {}
};

}  // namespace bv::BAREVISION_GPU::sm90

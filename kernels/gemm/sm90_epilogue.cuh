// Ends for a tile's sums in Hopper's matrix product (sm90_product.cuh). An epilogue has
//   Shared<tile_m>      a consumer's own part of shared memory; prepare() makes it ready
//   Carried<tile_n>     what a consumer's threads keep in registers from item to item; zeros first
//   store()             by the threads of a consumer, with an item's sums
//   finish()            by the same, before they return
//   sums_of_a           whether it may need Sums::a: then wants_sums_of_a() says it of an item
//   widest              the most columns of a tile for which registers suffice
//   same_columns        whether all items of a block must have the same columns
#pragma once
#include "kernels/cuda/column_sums.cuh"
#include "kernels/cuda/plain.cuh"
#include "kernels/gemm/gelu.cuh"
#include "kernels/gemm/sm90_product.cuh"

namespace bv::BAREVISION_GPU::sm90 {

// ---- Pieces -----------------------------------------------------------------------------------
// 16-bit tiles leave through shared memory, 64 columns at a time: TMA stores whole rows of 128
// bytes while the next piece is written.
constexpr int piece_columns = 64;

template <int tile_m>
struct Piece {
  alignas(1024) uint4 at[tile_m * 8];  // [tile_m, 64], swizzled: one of two
};

// Calls f(m, j, place) for each 16 x 16 sums of a warp in the piece: those of rows m * 64 and on,
// and of its columns 8 j ... 8 j + 15. `place` is the thread's row of 16 bytes for stmatrix and
// ldmatrix, whose four registers are pairs of Sums::of[m] from [4 (8 piece + j)] on, in order.
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

// The consumer's threads have written pieces; its first may have TMA store them.
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

// A layer's bias [N], or null; N is even.
template <class T>
struct Bias {
  const T* bias;
  int N;

  // A thread's columns of a piece.
  struct Piece {
    uint32_t pair[piece_columns / 8];
    __device__ Elements<float, 2> at(int j) const { return floats_of<T>(pair[j]); }
  };
  __device__ Piece piece(int first) const {
    Piece of{};
    first += Sums<64, 64>::column();
#pragma unroll
    for (int j = 0; j < piece_columns / 8; ++j)
      if (const int column = first + 8 * j; bias && column < N)
        std::memcpy(&of.pair[j], bias + column, sizeof of.pair[j]);
    return of;
  }
};

// TMA has read all pieces: they may be written again, or the block may end.
__device__ inline void wait_for_stores() {
  if (first_of_consumer()) cp_async_bulk_wait_group_read<0>();
}

struct Nothing {};  // is carried

// ---- out = sums + bias ------------------------------------------------------------------------
template <class T>
struct AddBias {
  static constexpr bool sums_of_a = false, same_columns = false;
  static constexpr int widest = 192;
  template <int>
  using Carried = Nothing;
  CUtensorMap out;  // [M, N] T in boxes of [tile_m, 64]
  Bias<T> bias;

  template <int tile_m>
  struct Shared {
    Piece<tile_m> piece[2];
    __device__ void prepare() {}
  };

  template <int tile_m, int tile_n>
  __device__ void store(const Sums<tile_m, tile_n>& sums, const Item& t, Nothing&,
                        Shared<tile_m>& s, int consumer, int turn) const {
    constexpr int pieces = tile_n / piece_columns;
#pragma unroll
    for (int p = 0; p < pieces; ++p) {
      Piece<tile_m>& piece = s.piece[(turn * pieces + p) % 2];
      const auto bias_of = bias.piece(t.n + p * piece_columns);
      if (first_of_consumer())
        cp_async_bulk_wait_group_read<1>();  // the piece before the last has left
      wait_for_consumer(consumer);
      for_each_square<Sums<tile_m, tile_n>::blocks>(piece, [&](int m, int j, uint4* to) {
        const float* const x = sums.of[m] + 4 * (8 * p + j);
        uint32_t pairs[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const auto b = bias_of.at(j + i / 2);
          pairs[i] = cvt_rn_x2<T>(x[2 * i] + b.at[0], x[2 * i + 1] + b.at[1]);
        }
        stmatrix_x4(to, pairs);
      });
      end_of_pieces(consumer);
      leave(out, piece, t.m, t.n + p * piece_columns);
    }
  }
  template <class Shared>
  __device__ void finish(Nothing&, Shared&, int) const {
    wait_for_stores();
  }
};

// ---- h = sums, out = gelu(sums + bias) --------------------------------------------------------
template <class T>
struct AddBiasGelu {
  static constexpr bool sums_of_a = false, same_columns = false;
  static constexpr int widest = 192;
  template <int>
  using Carried = Nothing;
  CUtensorMap out, h;  // [M, N] T in boxes of [tile_m, 64]
  bool stores_h;
  Bias<T> bias;

  template <int tile_m>
  struct Shared {
    Piece<tile_m> out, h;
    __device__ void prepare() {}
  };

  template <int tile_m, int tile_n>
  __device__ void store(const Sums<tile_m, tile_n>& sums, const Item& t, Nothing&,
                        Shared<tile_m>& s, int consumer, int) const {
#pragma unroll
    for (int p = 0; p < tile_n / piece_columns; ++p) {
      const int column = t.n + p * piece_columns;
      const auto bias_of = bias.piece(column);
      wait_for_stores();
      wait_for_consumer(consumer);
      for_each_square<Sums<tile_m, tile_n>::blocks>(s.out, [&](int m, int j, uint4* to) {
        const float* const x = sums.of[m] + 4 * (8 * p + j);
        uint32_t of_h[4], of_out[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const auto b = bias_of.at(j + i / 2);
          of_h[i] = cvt_rn_x2<T>(x[2 * i], x[2 * i + 1]);
          of_out[i] = cvt_rn_x2<T>(gelu(x[2 * i] + b.at[0]), gelu(x[2 * i + 1] + b.at[1]));
        }
        if (stores_h) stmatrix_x4(s.h.at + (to - s.out.at), of_h);
        stmatrix_x4(to, of_out);
      });
      end_of_pieces(consumer);
      if (stores_h) leave(h, s.h, t.m, column);
      leave(out, s.out, t.m, column);
    }
  }
  template <class Shared>
  __device__ void finish(Nothing&, Shared&, int) const {
    wait_for_stores();
  }
};

// ---- Columns ----------------------------------------------------------------------------------
// What an epilogue adds up in each column of out. A block's items have the same columns: a consumer's
// threads keep the sums of their rows in registers from item to item, for each piece of columns
// 8 j + Sums::column(), and the next. At the end each block stores its own, and the last block of
// these columns merges all of them, in their order.
template <int tile_n>
using ColumnSumsOfRows = float[tile_n / piece_columns][16];
constexpr int widest_columns = 128;

// of_warp[c] of each warp = the sum over its rows.
template <int tile_n>
__device__ void add_rows(ColumnSumsOfRows<tile_n>& sums,
                         float (&of_warp)[warpgroup / warp_size][widest_columns]) {
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
__device__ inline float over_warps(const float (&of_warp)[warpgroup / warp_size][widest_columns],
                                   int c) {
  float sum = 0;
#pragma unroll
  for (const auto& warp : of_warp) sum += warp[c];
  return sum;
}

__device__ inline void wait_for_consumers() { bar_sync(1 + consumers, consumers * warpgroup); }

struct AcrossBlocks {
  float* partial;     // [blocks of the same columns, numbers of a Value, N]
  unsigned* arrived;  // [tiles_n] counters, zeros
  int N;

  // Called by all threads of the consumers, with the value of the block's column of this thread
  // (its number among theirs). Kind as in LastBlock: Value, of floats, merge() and finish().
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

// ---- out = sums gelu'(h + bias), and its column sums ------------------------------------------
struct BiasGradient {
  struct Value {
    float sum;
    __device__ friend void merge(Value& a, const Value& b) { a.sum += b.sum; }
  };
  float* dbias;  // [N]  = or +=, by accumulate
  bool accumulate;
  __device__ void finish(int c, const Value& of) const { set_or_add(dbias[c], of.sum, accumulate); }
};

template <class T>
struct TimesGeluSlope {
  static constexpr bool sums_of_a = false, same_columns = true;
  static constexpr int widest = widest_columns;
  CUtensorMap out, h;  // [M, N] T in boxes of [tile_m, 64]
  Bias<T> bias;
  BiasGradient gradient;  // of out before it is rounded
  AcrossBlocks blocks;

  template <int tile_n>
  struct Carried {
    ColumnSumsOfRows<tile_n> sums;
  };
  template <int tile_m>
  struct Shared {
    Piece<tile_m> piece[2];  // h, then out in its place
    float of_warp[warpgroup / warp_size][widest];
    uint64_t has_h[2];  // mbarriers
    bool is_last;       // the first consumer's
    __device__ void prepare() {
      for (uint64_t& b : has_h) mbarrier_init(&b, 1);
    }
  };

  template <int tile_m, int tile_n>
  __device__ void store(const Sums<tile_m, tile_n>& sums, const Item& t, Carried<tile_n>& carried,
                        Shared<tile_m>& s, int consumer, int turn) const {
    constexpr int pieces = tile_n / piece_columns;
    const auto fetch = [&](int p) {  // once the piece before has left the place
      const int place = (turn * pieces + p) % 2;
      cp_async_bulk_wait_group_read<0>();
      mbarrier_arrive_expect_tx(&s.has_h[place], sizeof(Piece<tile_m>));
      cp_async_bulk_tensor(s.piece[place].at, h, &s.has_h[place], {t.n + p * piece_columns, t.m});
    };
    if (first_of_consumer()) fetch(0);
#pragma unroll
    for (int p = 0; p < pieces; ++p) {
      const int number = turn * pieces + p, column = t.n + p * piece_columns;
      Piece<tile_m>& piece = s.piece[number % 2];
      const auto bias_of = bias.piece(column);
      if (p + 1 < pieces && first_of_consumer()) fetch(p + 1);
      mbarrier_wait_parity(&s.has_h[number % 2], number / 2 % 2);
      float(&total)[16] = carried.sums[p];
      for_each_square<Sums<tile_m, tile_n>::blocks>(piece, [&](int m, int j, uint4* at) {
        const float* const x = sums.of[m] + 4 * (8 * p + j);
        uint32_t pairs[4];
        ldmatrix_x4(pairs, at);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const auto b = bias_of.at(j + i / 2);
          const auto of_h = floats_of<T>(pairs[i]);
          const float first = x[2 * i] * gelu_slope(of_h.at[0] + b.at[0]);
          const float second = x[2 * i + 1] * gelu_slope(of_h.at[1] + b.at[1]);
          total[2 * (j + i / 2)] += first, total[2 * (j + i / 2) + 1] += second;
          pairs[i] = cvt_rn_x2<T>(first, second);
        }
        stmatrix_x4(at, pairs);
      });
      end_of_pieces(consumer);
      leave(out, piece, t.m, column);
    }
  }

  template <int tile_n, int tile_m>
  __device__ void finish(Carried<tile_n>& carried, Shared<tile_m> (&s)[consumers],
                         int consumer) const {
    wait_for_stores();
    add_rows<tile_n>(carried.sums, s[consumer].of_warp);
    wait_for_consumers();
    const int c = static_cast<int>(threadIdx.x) - warpgroup;
    BiasGradient::Value mine{};
    if (c < tile_n)
      for (const auto& of : s) mine.sum += over_warps(of.of_warp, c);
    blocks.merge_blocks<tile_n>(gradient, mine, s->is_last);
  }
};

// ---- out (+)= sums in fp32 --------------------------------------------------------------------
struct ToFp32 {
  static constexpr bool sums_of_a = true, same_columns = false;
  template <int>
  using Carried = Nothing;
  float* out;       // [parts, M, N]
  float* sum_of_a;  // [parts, M] (+)= the sums over a's rows; or null
  int64_t part;     // floats from one part to the next, of both
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
      float* const x = sums.of[i / 2] + i % 2 * 2;  // [4 j], of columns 8 j and the next
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

// Epilogues of Hopper's convolutions (kernels/gemm/sm90_epilogue.cuh): they round and store the
// tile and compute batch norm's statistics from it.
#pragma once
#include "kernels/cuda/moments.cuh"
#include "kernels/cuda/norm_sums.cuh"
#include "kernels/gemm/sm90_epilogue.cuh"

namespace bv::BAREVISION_GPU::sm90 {

// ---- out = sums, and their moments ------------------------------------------------------------
// The moments of the rounded values are computed from sums of x - shift and of its square, where
// shift is the column's mean in the consumer's first tile, so that nothing cancels.
template <class T>
struct StoreWithMoments {
  static constexpr bool sums_of_a = false, same_columns = true, phases = false;
  static constexpr int widest = widest_columns;
  CUtensorMap out;       // [M, N] T in boxes of [tile_m, 64]
  MergeMoments moments;  // moments.moments null: not wanted
  AcrossBlocks blocks;

  template <int tile_n>
  struct Carried {
    ColumnSumsOfRows<tile_n> sums, squares;  // of x - shift
    int rows;
  };
  template <int tile_m>
  struct Shared {
    Piece<tile_m> piece[2];
    float of_warp[2][warpgroup / warp_size][widest];
    float shift[widest];
    int rows;
    bool is_last;  // only the first consumer's is used
    __device__ void prepare() {}
  };

  template <int tile_m, int tile_n>
  __device__ void store(const Sums<tile_m, tile_n>& sums, const Item& t, Carried<tile_n>& carried,
                        Shared<tile_m>& s, int consumer, int turn) const {
    constexpr int pieces = tile_n / piece_columns;
    const bool wanted = moments.moments != nullptr;
    const int left = moments.rows - t.m;  // rows past the last don't count
    if (wanted && turn == 0) choose_shift(sums, min(left, tile_m), carried, s, consumer);
#pragma unroll
    for (int p = 0; p < pieces; ++p) {
      Piece<tile_m>& piece = s.piece[(turn * pieces + p) % 2];
      if (first_of_consumer())
        cp_async_bulk_wait_group_read<1>();  // TMA has read this buffer's previous piece
      wait_for_consumer(consumer);
      const float* const shift = s.shift + p * piece_columns;
      for_each_square<Sums<tile_m, tile_n>::blocks>(piece, [&](int m, int j, uint4* to) {
        const float* const x = sums.of[m] + 4 * (8 * p + j);
        uint32_t pairs[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          pairs[i] = cvt_rn_x2<T>(x[2 * i], x[2 * i + 1]);
          if (!wanted || square_row(m, i) >= left) continue;
          const auto rounded = floats_of<T>(pairs[i]);
          const auto from = load<2>(shift + square_column(j, i));
#pragma unroll
          for (int k = 0; k < 2; ++k) {
            const int at = 2 * (j + i / 2) + k;
            const float d = rounded.at[k] - from.at[k];
            carried.sums[p][at] += d;
            carried.squares[p][at] = fmaf(d, d, carried.squares[p][at]);
          }
        }
        stmatrix_x4(to, pairs);
      });
      end_of_pieces(consumer);
      leave(out, piece, t.m, t.n + p * piece_columns);
    }
    carried.rows += min(left, tile_m);
  }

  template <int tile_n, int tile_m>
  __device__ void finish(Carried<tile_n>& carried, Shared<tile_m> (&s)[consumers],
                         int consumer) const {
    wait_for_stores();
    if (!moments.moments) return;
    Shared<tile_m>& own = s[consumer];
    add_rows<tile_n>(carried.sums, own.of_warp[0]);
    add_rows<tile_n>(carried.squares, own.of_warp[1]);
    if (first_of_consumer()) own.rows = carried.rows;
    wait_for_consumers();
    const int c = static_cast<int>(threadIdx.x) - warpgroup;
    Moments mine{};
    if (c < tile_n)
      for (const auto& of : s) {
        if (of.rows == 0) continue;
        const auto count = static_cast<float>(of.rows), sum = over_warps(of.of_warp[0], c);
        const float mean = sum / count;
        merge(mine, {count, of.shift[c] + mean, fmaf(-sum, mean, over_warps(of.of_warp[1], c))});
      }
    blocks.merge_blocks<tile_n>(moments, mine, s->is_last);
  }

 private:
  template <int tile_m, int tile_n>
  __device__ static void choose_shift(const Sums<tile_m, tile_n>& sums, int rows,
                                      Carried<tile_n>& carried, Shared<tile_m>& s, int consumer) {
    auto& of_rows = carried.sums;  // zeros here, and zeroed again below
#pragma unroll
    for (int i = 0; i < tile_n / 2; i += 2)
#pragma unroll
      for (int m = 0; m < sums.blocks; ++m) {  // rows past the last are zeros
        const auto x = floats_of<T>(cvt_rn_x2<T>(sums.of[m][i], sums.of[m][i + 1]));
        float* const to = &of_rows[i / 32][i % 32 / 4 * 2];
        to[0] += x.at[0], to[1] += x.at[1];
      }
    add_rows<tile_n>(of_rows, s.of_warp[0]);
    wait_for_consumer(consumer);
    const int c = threadIdx.x % warpgroup;
    if (c < tile_n) s.shift[c] = over_warps(s.of_warp[0], c) / static_cast<float>(rows);
    wait_for_consumer(consumer);
    for (auto& piece : of_rows)
      for (float& sum : piece) sum = 0;
  }
};

// ---- Rows of dinp -----------------------------------------------------------------------------
// These types map a tile's rows to the tensors' rows and move pieces of out, add and inp. prepare()
// initialises a consumer's part of shared memory, Shared<tile_m>.
//   begin()    is called once per tile
//   bring()    waits until out's piece may be overwritten, loads add into it, and loads inp's piece
//   leave()    stores the piece of out
//   row()      returns the tensors' row for the tile's row i; -1: none

// All rows, in order; TMA moves them.
template <class T>
struct ConsecutiveRows {
  static constexpr bool phases = false;
  CUtensorMap out, add, inp;  // [M, N] T in boxes of [tile_m, 64]
  int M;

  template <int tile_m>
  struct Shared {
    uint64_t full;  // mbarrier of add and inp
    __device__ void prepare() { mbarrier_init(&full, 1); }
  };

  template <int tile_m>
  __device__ void begin(Shared<tile_m>&, const Item&, int) const {}

  template <int tile_m>
  __device__ void bring(Shared<tile_m>& s, Piece<tile_m>& out_piece, Piece<tile_m>& inp_piece,
                        const Item& t, int column, bool adds, bool has_inp, int consumer,
                        int number) const {
    wait_for_stores();
    if (!adds && !has_inp) return wait_for_consumer(consumer);
    if (first_of_consumer()) {
      mbarrier_arrive_expect_tx(&s.full, (adds + has_inp) * sizeof(Piece<tile_m>));
      if (adds) cp_async_bulk_tensor(out_piece.at, add, &s.full, {column, t.m});
      if (has_inp) cp_async_bulk_tensor(inp_piece.at, inp, &s.full, {column, t.m});
    }
    mbarrier_wait_parity(&s.full, number % 2);
  }
  template <int tile_m>
  __device__ void leave(Shared<tile_m>&, Piece<tile_m>& piece, const Item& t, int column,
                        int consumer) const {
    end_of_pieces(consumer);
    sm90::leave(out, piece, t.m, column);
  }
  template <int tile_m>
  __device__ int row(const Shared<tile_m>&, const Item& t, int i) const {
    return t.m + i < M ? t.m + i : -1;
  }
};

// Every stride-th row and column of the images, as the phase requires; threads move them.
template <class T>
struct PhaseRows {
  static constexpr bool phases = true;
  T* out;  // [rows, N]
  const T *add, *inp;
  int N;
  Geometry geometry;
  Phase phase[Division::max_phases];

  template <int tile_m>
  struct Shared {
    int row[tile_m];
    __device__ void prepare() {}
  };

  template <int tile_m>
  __device__ void begin(Shared<tile_m>& s, const Item& t, int consumer) const {
    static_assert(tile_m == warpgroup);
    const int i = threadIdx.x % warpgroup;
    wait_for_consumer(consumer);  // all threads are done with the previous tile
    s.row[i] = out_row<true>(geometry, phase[t.part], t.m + i);
    wait_for_consumer(consumer);
  }
  template <int tile_m>
  __device__ void bring(Shared<tile_m>& s, Piece<tile_m>& out_piece, Piece<tile_m>& inp_piece,
                        const Item&, int column, bool adds, bool has_inp, int consumer, int) const {
    if (adds || has_inp)
      each(s, column, [&](int i, int64_t at) {
        if (adds) out_piece.at[i] = load(add, at);
        if (has_inp) inp_piece.at[i] = load(inp, at);
      });
    wait_for_consumer(consumer);
  }
  template <int tile_m>
  __device__ void leave(Shared<tile_m>& s, Piece<tile_m>& piece, const Item&, int column,
                        int consumer) const {
    wait_for_consumer(consumer);
    each(s, column, [&](int i, int64_t at) {
      if (at >= 0) *reinterpret_cast<uint4*>(out + at) = piece.at[i];
    });
    wait_for_consumer(consumer);
  }
  template <int tile_m>
  __device__ int row(const Shared<tile_m>& s, const Item&, int i) const {
    return s.row[i];
  }

 private:
  __device__ static uint4 load(const T* from, int64_t at) {
    return at < 0 ? uint4{} : *reinterpret_cast<const uint4*>(from + at);
  }
  // Calls f(place in the piece, element of the tensor or -1) for each 16 bytes that a thread moves.
  template <int tile_m, class F>
  __device__ void each(const Shared<tile_m>& s, int column, F f) const {
    const int chunk = threadIdx.x % 8;
    if (column + chunk * 8 >= N) return;
#pragma unroll
    for (int i = threadIdx.x % warpgroup / 8; i < tile_m; i += warpgroup / 8)
      f(i * 8 + (chunk ^ i % 8), s.row[i] < 0 ? -1 : int64_t{s.row[i]} * N + column + chunk * 8);
  }
};

// ---- out = sums + add, and batch norm's backward sums -------------------------------------------
// The batch norm that computed the convolution's inp (BatchNormBackwardSums). out is the batch
// norm's dout, or with relu_mask its g. The batch norm's own inp is rows.inp.
struct NormOfInput {
  const uint64_t* relu_mask;  // bits of y > 0 [ceil(N / 64), rows]; null: y is recomputed
  int rows;
  const float *mean, *rstd, *weight, *bias;  // [N]
  bool relu;
};

template <class T, class Rows>
struct StoreInputGradient {
  static constexpr bool sums_of_a = false, same_columns = true, phases = Rows::phases;
  static constexpr int widest = widest_columns;
  Rows rows;
  bool adds, has_norm;  // whether rows.add is used; whether rows.inp, norm and sums are
  NormOfInput norm;
  NormSums sums;
  AcrossBlocks blocks;

  template <int tile_n>
  struct Carried {
    ColumnSumsOfRows<tile_n> g, g_d;  // sums of g and of g * (inp - mean)
  };
  template <int tile_m>
  struct Shared {
    Piece<tile_m> out, inp;  // out: holds add at first
    float of_warp[2][warpgroup / warp_size][widest];
    float mean[widest], scale[widest], bias[widest];
    typename Rows::template Shared<tile_m> rows;
    bool is_last;  // only the first consumer's is used
    __device__ void prepare() { rows.prepare(); }
  };

  template <int tile_m, int tile_n>
  __device__ void store(const Sums<tile_m, tile_n>& product, const Item& t,
                        Carried<tile_n>& carried, Shared<tile_m>& s, int consumer, int turn) const {
    constexpr int blocks_m = Sums<tile_m, tile_n>::blocks;
    const int pieces = ceil_div(min(tile_n, blocks.N - t.n), piece_columns);
    rows.begin(s.rows, t, consumer);
    if (has_norm && turn == 0) {
      load_norm<tile_n>(t.n, s);
      wait_for_consumer(consumer);
    }
#pragma unroll
    for (int p = 0; p < tile_n / piece_columns; ++p) {
      if (p >= pieces) break;
      const int column = t.n + p * piece_columns;
      rows.bring(s.rows, s.out, s.inp, t, column, adds, has_norm, consumer, turn * pieces + p);
      for_each_square<blocks_m>(s.out, [&](int m, int j, uint4* at) {
        const float* const x = product.of[m] + 4 * (8 * p + j);
        uint32_t pairs[4], of_inp[4];
        if (adds) ldmatrix_x4(pairs, at);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          Elements<float, 2> before{};
          if (adds) before = floats_of<T>(pairs[i]);
          pairs[i] = cvt_rn_x2<T>(x[2 * i] + before.at[0], x[2 * i + 1] + before.at[1]);
          // A phase's pixels outside the image have sums, too, which must not count.
          if (phases && rows.row(s.rows, t, square_row(m, i)) < 0) pairs[i] = 0;
        }
        if (has_norm) {
          ldmatrix_x4(of_inp, s.inp.at + (at - s.out.at));
          uint32_t on[2] = {~0u, ~0u};
          if (norm.relu_mask)
            for (int i = 0; i < 2; ++i)
              on[i] = mask_of(rows.row(s.rows, t, square_row(m, i)), column + 8 * j);
          add_up<tile_n>(pairs, of_inp, on, j, p, s, carried);
        }
        stmatrix_x4(at, pairs);
      });
      rows.leave(s.rows, s.out, t, column, consumer);
    }
  }

  template <int tile_n, int tile_m>
  __device__ void finish(Carried<tile_n>& carried, Shared<tile_m> (&s)[consumers],
                         int consumer) const {
    wait_for_stores();
    if (!has_norm) return;
    add_rows<tile_n>(carried.g, s[consumer].of_warp[0]);
    add_rows<tile_n>(carried.g_d, s[consumer].of_warp[1]);
    wait_for_consumers();
    const int c = static_cast<int>(threadIdx.x) - warpgroup;
    const int column = static_cast<int>(blockIdx.x) % ceil_div(blocks.N, tile_n) * tile_n + c;
    NormSums::Value mine{};
    if (c < tile_n && column < blocks.N) {
      for (const auto& of : s)
        mine.g += over_warps(of.of_warp[0], c), mine.g_xhat += over_warps(of.of_warp[1], c);
      mine.g_xhat *= norm.rstd[column];
    }
    blocks.merge_blocks<tile_n>(sums, mine, s->is_last);
  }

 private:
  // Loads the columns' constants.
  template <int tile_n, int tile_m>
  __device__ void load_norm(int first, Shared<tile_m>& s) const {
    const int c = threadIdx.x % warpgroup, column = first + c;
    if (c >= tile_n || column >= blocks.N) return;
    s.mean[c] = norm.mean[column];
    s.scale[c] = norm.rstd[column] * norm.weight[column];
    s.bias[c] = norm.bias[column];
  }

  // relu_mask's bits for 16 columns of a row. A row of -1 has sums of 0, so its bits don't matter.
  __device__ uint32_t mask_of(int row, int column) const {
    const size_t byte = relu_mask_byte(norm.rows, max(row, 0), column);
    return reinterpret_cast<const uint16_t*>(norm.relu_mask)[byte / 2];
  }

  // pairs: d, the rounded sums; with relu_mask, g replaces them.
  template <int tile_n, int tile_m>
  __device__ void add_up(uint32_t (&pairs)[4], const uint32_t (&of_inp)[4], const uint32_t (&on)[2],
                         int j, int p, const Shared<tile_m>& s, Carried<tile_n>& carried) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int in_piece = square_column(j, i), c = p * piece_columns + in_piece;
      const auto d = floats_of<T>(pairs[i]), x = floats_of<T>(of_inp[i]);
      const auto mean = load<2>(s.mean + c), scale = load<2>(s.scale + c);
      const auto bias = load<2>(s.bias + c);
      Elements<float, 2> g;
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        const int at = 2 * (j + i / 2) + k;
        const float from_mean = x.at[k] - mean.at[k];
        const bool passes = norm.relu_mask ? on[i % 2] >> (in_piece % 16 + k) & 1
                            : norm.relu    ? fmaf(from_mean, scale.at[k], bias.at[k]) > 0
                                           : true;
        g.at[k] = passes ? d.at[k] : 0;
        carried.g[p][at] += g.at[k];
        carried.g_d[p][at] = fmaf(g.at[k], from_mean, carried.g_d[p][at]);
      }
      if (norm.relu_mask) pairs[i] = cvt_rn_x2<T>(g.at[0], g.at[1]);
    }
  }
};

}  // namespace bv::BAREVISION_GPU::sm90

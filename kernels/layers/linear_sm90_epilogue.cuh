// Epilogues of Hopper's linear layers (kernels/gemm/sm90_epilogue.cuh): bias, GELU, GELU's slope.
#pragma once
#include "kernels/gemm/gelu.cuh"
#include "kernels/gemm/sm90_epilogue.cuh"

namespace bv::BAREVISION_GPU::sm90 {

// A layer's bias [N], or null; N is even.
template <class T>
struct Bias {
  const T* bias;
  int N;

  // The bias of a thread's columns of a piece.
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

// Pieces have 64 rows: two of 128 per consumer would leave the largest tiles only two stages.
constexpr int piece_rows = wgmma_m;

// ---- out = sums + bias ------------------------------------------------------------------------
template <class T>
struct AddBias {
  static constexpr bool sums_of_a = false, same_columns = false, phases = false;
  static constexpr int widest = 192;
  template <int tile_m, int tile_n>
  static constexpr bool in_step = evenly_many<tile_m, tile_n, piece_rows>;
  template <int>
  using Carried = Nothing;
  CUtensorMap out;  // [M, N] T in boxes of [piece_rows, 64]
  Bias<T> bias;

  template <int>
  struct Shared {
    Piece<piece_rows> piece[2];
    __device__ void prepare() {}
  };

  template <int tile_m, int tile_n>
  __device__ void store(const Sums<tile_m, tile_n>& sums, const Item& t, Nothing&,
                        Shared<tile_m>& s, int consumer, int turn) const {
    constexpr int pieces = tile_n / piece_columns * sums.blocks;
#pragma unroll
    for (int p = 0; p < tile_n / piece_columns; ++p) {
      const auto bias_of = bias.piece(t.n + p * piece_columns);
#pragma unroll
      for (int m = 0; m < sums.blocks; ++m) {
        Piece<piece_rows>& piece = s.piece[(turn * pieces + p * sums.blocks + m) % 2];
        if (first_of_consumer())
          cp_async_bulk_wait_group_read<1>();  // TMA has read this buffer's previous piece
        wait_for_consumer(consumer);
        for_each_square<1>(piece, [&](int, int j, uint4* to) {
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
        leave(out, piece, t.m + m * piece_rows, t.n + p * piece_columns);
      }
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
  static constexpr bool sums_of_a = false, same_columns = false, phases = false;
  static constexpr int widest = 192;
  template <int, int>
  static constexpr bool in_step = true;  // has one buffer each
  template <int>
  using Carried = Nothing;
  CUtensorMap out, h;  // [M, N] T in boxes of [piece_rows, 64]
  bool stores_h;
  Bias<T> bias;

  template <int>
  struct Shared {
    Piece<piece_rows> out, h;
    __device__ void prepare() {}
  };

  template <int tile_m, int tile_n>
  __device__ void store(const Sums<tile_m, tile_n>& sums, const Item& t, Nothing&,
                        Shared<tile_m>& s, int consumer, int) const {
#pragma unroll
    for (int p = 0; p < tile_n / piece_columns; ++p) {
      const int column = t.n + p * piece_columns;
      const auto bias_of = bias.piece(column);
#pragma unroll
      for (int m = 0; m < sums.blocks; ++m) {
        wait_for_stores();
        wait_for_consumer(consumer);
        for_each_square<1>(s.out, [&](int, int j, uint4* to) {
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
        if (stores_h) leave(h, s.h, t.m + m * piece_rows, column);
        leave(out, s.out, t.m + m * piece_rows, column);
      }
    }
  }
  template <class Shared>
  __device__ void finish(Nothing&, Shared&, int) const {
    wait_for_stores();
  }
};

// ---- out = sums gelu'(h + bias), and its column sums ------------------------------------------
struct BiasGradient {
  struct Value {
    float sum;
    __device__ friend void merge(Value& a, const Value& b) { a.sum += b.sum; }
  };
  float* dbias;  // [N]  = or +=, per accumulate
  bool accumulate;
  __device__ void finish(int c, const Value& of) const { set_or_add(dbias[c], of.sum, accumulate); }
};

template <class T>
struct TimesGeluSlope {
  static constexpr bool sums_of_a = false, same_columns = true, phases = false;
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
    bool is_last;       // only the first consumer's is used
    __device__ void prepare() {
      for (uint64_t& b : has_h) mbarrier_init(&b, 1);
    }
  };

  template <int tile_m, int tile_n>
  __device__ void store(const Sums<tile_m, tile_n>& sums, const Item& t, Carried<tile_n>& carried,
                        Shared<tile_m>& s, int consumer, int turn) const {
    constexpr int pieces = tile_n / piece_columns;
    const auto fetch = [&](int p) {  // once TMA has read the pieces stored before
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

}  // namespace bv::BAREVISION_GPU::sm90

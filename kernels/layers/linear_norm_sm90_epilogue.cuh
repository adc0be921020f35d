// Epilogues of Hopper's linear layers (kernels/gemm/sm90_epilogue.cuh) whose tiles hold whole rows:
// layer norm, forward and backward.
#pragma once
#include "kernels/cuda/norm_sums.cuh"
#include "kernels/gemm/dropout.cuh"
#include "kernels/gemm/sm90_epilogue.cuh"

namespace bv::BAREVISION_GPU::sm90 {

constexpr int norm_rows = 64, row_length = 192;  // of a consumer's tile

// Dropout of a thread's pairs in for_each_square, x[2 i] and x[2 i + 1] at square_row(0, i) of the
// 64 rows from `m` on and at square_column(j, i). Two neighbouring lanes hold the four columns of a
// draw, in two rows: each lane draws for one of the rows.
class DroppedSquares {
 public:
  __device__ DroppedSquares(const auto& op, int m)
      : row_(op, m + square_row(0, odd()), row_length) {}
  // first: the piece's first column.
  __device__ void drop(float (&x)[8], int first, int j) const {
    if (!row_.drops()) return;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const Philox4 words = row_.draw((first + square_column(j, 2 * half)) & ~3u);
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        const uint32_t own = odd() ? words.at[2 + k] : words.at[k];
        const uint32_t other = odd() ? words.at[k] : words.at[2 + k];
        const uint32_t from_other = __shfl_xor_sync(~0u, other, 1);
        float &top = x[4 * half + k], &bottom = x[4 * half + 2 + k];
        top = row_.by_word(odd() ? from_other : own, top);
        bottom = row_.by_word(odd() ? own : from_other, bottom);
      }
    }
  }

 private:
  __device__ static bool odd() { return threadIdx.x % 2; }
  DroppedRow row_;
};

// ---- out = layer norm of the sums, the bias and stream ------------------------------------------
// A thread has 48 columns of two rows; the values that it stores in `sum` replace its sums.
template <class T>
struct NormForward {
  static constexpr bool sums_of_a = false, same_columns = false, phases = false;
  static constexpr int pieces = row_length / piece_columns;
  template <int, int tile_n>
  static constexpr bool in_step = tile_n == row_length;  // whole rows: the last item is left out
  template <int>
  using Carried = Nothing;
  CUtensorMap out, sum, stream;  // [M, row_length] T in boxes of [norm_rows, 64]
  LayerNormForward norm;
  const T* bias;  // [row_length], or null

  template <int>
  struct Shared {
    Piece<norm_rows> sum[pieces], out[pieces];  // sum: holds stream at first
    float bias[row_length], weight[row_length], norm_bias[row_length];
    uint64_t full;  // mbarrier of stream
    __device__ void prepare() { mbarrier_init(&full, 1); }
  };

  // Fetches what store() reads, while the consumer multiplies.
  template <class Shared>
  __device__ void begin(const Item& t, Nothing&, Shared& s, int consumer, int turn) const {
    if (first_of_consumer()) {
      cp_async_bulk_wait_group_read<0>();  // TMA has read the previous item's pieces
      mbarrier_arrive_expect_tx(&s.full, sizeof s.sum);
      for (int p = 0; p < pieces; ++p)
        cp_async_bulk_tensor(s.sum[p].at, stream, &s.full, {p * piece_columns, t.m});
    }
    if (turn > 0) return;
    for (int c = threadIdx.x % warpgroup; c < row_length; c += warpgroup) {
      s.bias[c] = bias ? to_float(bias[c]) : 0;
      s.weight[c] = norm.weight[c];
      s.norm_bias[c] = norm.bias[c];
    }
    wait_for_consumer(consumer);
  }

  template <class Sums, class Shared>
  __device__ void store(Sums& product, const Item& t, Nothing&, Shared& s, int consumer,
                        int turn) const {
    const DroppedSquares dropout(norm, t.m);
    float mean[2] = {}, rstd[2] = {}, factor[2];  // sums over the row at first
#pragma unroll
    for (int i = 0; i < 2; ++i)
      factor[i] = keep_factor(norm.drop_path, is_kept(norm, t.m + square_row(0, i)));
    mbarrier_wait_parity(&s.full, turn % 2);
#pragma unroll
    for (int p = 0; p < pieces; ++p) {
      for_each_square<1>(s.sum[p], [&](int, int j, uint4* at) {
        uint32_t pairs[4];
        ldmatrix_x4(pairs, at);
        float* const sums = product.of[0] + 4 * (8 * p + j);
        float x[8];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const auto of_bias = load<2>(s.bias + p * piece_columns + square_column(j, i));
          x[2 * i] = sums[2 * i] + of_bias.at[0], x[2 * i + 1] = sums[2 * i + 1] + of_bias.at[1];
        }
        dropout.drop(x, p * piece_columns, j);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int row = i % 2;
          const auto add = floats_of<T>(pairs[i]);
          pairs[i] = cvt_rn_x2<T>(add.at[0] + times(x[2 * i], factor[row]),
                                  add.at[1] + times(x[2 * i + 1], factor[row]));
          const auto stored = floats_of<T>(pairs[i]);
          sums[2 * i] = stored.at[0], sums[2 * i + 1] = stored.at[1];
          mean[row] += stored.at[0] + stored.at[1];
        }
        stmatrix_x4(at, pairs);
      });
      end_of_pieces(consumer);
      leave(sum, s.sum[p], t.m, p * piece_columns);
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) mean[i] = warp_sum<4>(mean[i]) * (1.0f / row_length);
#pragma unroll
    for (int i = 0; i < row_length / 2; ++i) {
      float& x = product.of[0][i];
      const int row = i / 2 % 2;
      x -= mean[row];
      rstd[row] = fmaf(x, x, rstd[row]);
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      rstd[i] = rsqrtf(fmaf(warp_sum<4>(rstd[i]), 1.0f / row_length, norm.eps));
      const int row = t.m + square_row(0, i);
      if (Sums::column() == 0 && row < norm.shape.rows)
        norm.mean[row] = mean[i], norm.rstd[row] = rstd[i];
    }
#pragma unroll
    for (int p = 0; p < pieces; ++p) {
      for_each_square<1>(s.out[p], [&](int, int j, uint4* to) {
        uint32_t pairs[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int column = p * piece_columns + square_column(j, i);
          const auto weight = load<2>(s.weight + column), of_bias = load<2>(s.norm_bias + column);
          const float* const x = product.of[0] + 4 * (8 * p + j) + 2 * i;
          pairs[i] = cvt_rn_x2<T>(fmaf(x[0] * rstd[i % 2], weight.at[0], of_bias.at[0]),
                                  fmaf(x[1] * rstd[i % 2], weight.at[1], of_bias.at[1]));
        }
        stmatrix_x4(to, pairs);
      });
      end_of_pieces(consumer);
      leave(out, s.out[p], t.m, p * piece_columns);
    }
  }

  template <class Shared>
  __device__ void finish(Nothing&, Shared&, int) const {
    wait_for_stores();
  }
};

// ---- dinp = layer norm's backward of the sums -------------------------------------------------
// A thread has 48 columns of two rows and processes them twice: for the sums over rows and columns,
// then for dinp. It reads `sum` from shared memory again, since its registers are full.
template <class T>
struct NormBackward {
  static constexpr bool sums_of_a = false, same_columns = true, phases = false;
  static constexpr int pieces = row_length / piece_columns;
  CUtensorMap dinp, dresidual, dsum, sum;  // [M, row_length] T in boxes of [norm_rows, 64]
  LayerNormBackward norm;                  // dsum and dresidual may be null
  NormSums sums;
  AcrossBlocks blocks;

  template <int>
  struct Carried {
    ColumnSumsOfRows<row_length> d, d_xhat;  // sums of product and of product * xhat
    float mean[2], rstd[2];                  // of the item's rows
  };
  template <int>
  struct Shared {
    struct Rows {
      Piece<norm_rows> sum[pieces], dsum[pieces];  // then dresidual and dinp in their places
    };
    union {
      Rows rows;
      float of_warp[2][warpgroup / warp_size][row_length];  // at the end
    };
    float weight[row_length];
    uint64_t full;  // mbarrier of sum and dsum
    bool is_last;   // only the first consumer's is used
    __device__ void prepare() { mbarrier_init(&full, 1); }
  };

  // Fetches what store() reads, while the consumer multiplies.
  template <class Carried, class Shared>
  __device__ void begin(const Item& t, Carried& carried, Shared& s, int consumer, int turn) const {
    if (first_of_consumer()) {
      cp_async_bulk_wait_group_read<0>();  // TMA has read the previous item's pieces
      mbarrier_arrive_expect_tx(&s.full, (norm.dsum ? 2 : 1) * sizeof s.rows.sum);
      for (int p = 0; p < pieces; ++p) {
        cp_async_bulk_tensor(s.rows.sum[p].at, sum, &s.full, {p * piece_columns, t.m});
        if (norm.dsum)
          cp_async_bulk_tensor(s.rows.dsum[p].at, dsum, &s.full, {p * piece_columns, t.m});
      }
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = t.m + square_row(0, i);
      const bool exists = row < norm.shape.rows;  // else the row's sums, sum and dsum are zeros
      carried.mean[i] = exists ? norm.mean[row] : 0;
      carried.rstd[i] = exists ? norm.rstd[row] : 0;
    }
    if (turn > 0) return;
    for (int c = threadIdx.x % warpgroup; c < row_length; c += warpgroup)
      s.weight[c] = norm.weight[c];
    wait_for_consumer(consumer);
  }

  template <class Sums, class Carried, class Shared>
  __device__ void store(const Sums& product, const Item& t, Carried& carried, Shared& s,
                        int consumer, int turn) const {
    const float(&mean)[2] = carried.mean, (&rstd)[2] = carried.rstd;
    float g_mean[2] = {}, slope[2] = {};  // sums over the row at first
    mbarrier_wait_parity(&s.full, turn % 2);
#pragma unroll
    for (int p = 0; p < pieces; ++p)
      for_each_square<1>(s.rows.sum[p], [&](int, int j, const uint4* at) {
        uint32_t of_sum[4];
        ldmatrix_x4(of_sum, at);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int row = i % 2;
          const auto x = floats_of<T>(of_sum[i]);
          const auto weight = load<2>(s.weight + p * piece_columns + square_column(j, i));
#pragma unroll
          for (int k = 0; k < 2; ++k) {
            const int column = 2 * (j + i / 2) + k;
            const float d = product.of[0][4 * (8 * p + j) + 2 * i + k];
            const float d_xhat = d * ((x.at[k] - mean[row]) * rstd[row]);
            carried.d[p][column] += d;
            carried.d_xhat[p][column] += d_xhat;
            g_mean[row] = fmaf(d, weight.at[k], g_mean[row]);
            slope[row] = fmaf(d_xhat, weight.at[k], slope[row]);
          }
        }
      });
    float factor[2] = {};
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      g_mean[i] = warp_sum<4>(g_mean[i]) * (1.0f / row_length);
      slope[i] = warp_sum<4>(slope[i]) * (1.0f / row_length) * rstd[i];
      if (norm.dresidual)
        factor[i] = keep_factor(norm.drop_path, is_kept(norm, t.m + square_row(0, i)));
    }
#pragma unroll
    for (int p = 0; p < pieces; ++p) {
      for_each_square<1>(s.rows.dsum[p], [&](int, int j, uint4* at) {
        uint4* const at_sum = s.rows.sum[p].at + (at - s.rows.dsum[p].at);
        uint32_t of_sum[4], of_dsum[4] = {};
        ldmatrix_x4(of_sum, at_sum);
        if (norm.dsum) ldmatrix_x4(of_dsum, at);
        float d[4][2];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int row = i % 2;
          const auto x = floats_of<T>(of_sum[i]), add = floats_of<T>(of_dsum[i]);
          const auto weight = load<2>(s.weight + p * piece_columns + square_column(j, i));
#pragma unroll
          for (int k = 0; k < 2; ++k) {
            float& to = d[i][k];
            to = fmaf(product.of[0][4 * (8 * p + j) + 2 * i + k], weight.at[k], -g_mean[row]);
            to = fmaf(fmaf(x.at[k] - mean[row], -slope[row], to), rstd[row], add.at[k]);
          }
          of_dsum[i] = cvt_rn_x2<T>(d[i][0], d[i][1]);
        }
        stmatrix_x4(at, of_dsum);
        if (!norm.dresidual) return;
#pragma unroll
        for (int i = 0; i < 4; ++i)
          of_sum[i] = cvt_rn_x2<T>(times(d[i][0], factor[i % 2]), times(d[i][1], factor[i % 2]));
        stmatrix_x4(at_sum, of_sum);
      });
      end_of_pieces(consumer);
      leave(dinp, s.rows.dsum[p], t.m, p * piece_columns);
      if (norm.dresidual) leave(dresidual, s.rows.sum[p], t.m, p * piece_columns);
    }
  }

  template <class Carried, class Shared>
  __device__ void finish(Carried& carried, Shared (&s)[consumers], int consumer) const {
    Shared& own = s[consumer];
    wait_for_stores();
    wait_for_consumer(consumer);
    add_rows<row_length>(carried.d, own.of_warp[0]);
    add_rows<row_length>(carried.d_xhat, own.of_warp[1]);
    wait_for_consumers();
    const int c = static_cast<int>(threadIdx.x) - warpgroup;
    NormSums::Value mine{};
    if (c < row_length)
      for (const auto& of : s)
        mine.g += over_warps(of.of_warp[0], c), mine.g_xhat += over_warps(of.of_warp[1], c);
    blocks.merge_blocks<row_length>(sums, mine, s->is_last);
  }
};

}  // namespace bv::BAREVISION_GPU::sm90

// Epilogue of conv_implicit_gemm.cu: rounds the sums, stages them in shared memory, stores 16 bytes
// at a time, and computes batch norm's statistics from the staged tile instead of reading `out`. In
// forward, these are the moments that batch norm needs next; in the input gradient, if a batch norm
// computed inp, they are the sums of its backward (BatchNormBackwardSums).
#pragma once
#include "kernels/cuda/column_sums.cuh"
#include "kernels/cuda/moments.cuh"
#include "kernels/cuda/norm_sums.cuh"
#include "kernels/gemm/conv_tiles.cuh"

namespace bv::BAREVISION_GPU::implicit_gemm {

constexpr int threads = 128, warps = threads / warp_size;

// The batch norm that computed inp.
struct Norm {
  const void* inp;                           // as out
  const uint64_t* relu_mask;                 // bits of y > 0; dinp is then g; null: recompute y
  int rows;                                  // of inp
  const float *mean, *rstd, *weight, *bias;  // [gemm_n]
  bool relu;
};

// ---- The convolution as a matrix product --------------------------------------------------------
struct Product {
  Geometry geometry;
  void* out;
  const void* add;     // as out, or null
  float4* sums;        // [parts, tiles]: the parts' sums, from save(); null: one part
  unsigned* arrived;   // [tiles]: counts the parts that have finished
  const void* image;   // [N, H, W, gemm_k]
  const void* weight;  // [K, R, S, C]
  int gemm_k, gemm_n;  // gemm_k: per tap
  int n_tiles;
  Divisor by_n_tiles;
  // One part per tile of pixels, over all phases; partial is null if no statistics are wanted.
  RowParts parts;
  MergeMoments moments;  // forward
  NormSums norm_sums;    // input gradient
  Norm norm;
  int group;  // channels per group; 0: one group
};

struct Tile {
  Phase phase;
  int pixel, n;  // the tile's first pixel and column
};

template <int m, int n>
struct Results {
  using MergedMoments = LastBlock<MergeMoments, threads, n, 4>;
  using MergedSums = LastBlock<NormSums, threads, n, 4>;
  union {
    alignas(128) uint4 tile[m * n / 8];  // [m, n]
    typename MergedMoments::Shared moments;
    typename MergedSums::Shared norm_sums;
  };
  alignas(16) float mean[n];
  float of_warps[2][warps][n];  // sums over each warp's rows
};

template <class T, int m, int n>
using Sums = WarpTile<T, m, n, m == 256 ? 4 : 2, m == 256 ? 1 : 2>;

// ---- The epilogue -------------------------------------------------------------------------------
template <class T, int m, int n, bool input_gradient>
struct Epilogue {
  using Rows = RowCopies<threads, n / 8>;
  static constexpr int rows = m / Rows::at_once;

  const Product& p;
  const Tile& t;
  Results<m, n>& s;

  // tile = add
  __device__ void load_add() const {
    const int column = t.n + Rows::chunk() * 8;
#pragma unroll 4
    for (int k = 0; k < rows; ++k) {
      const int to = row(t.pixel + Rows::row() + k * Rows::at_once);
      const bool in_bounds = to >= 0 && column < p.gemm_n;
      cp_async_16(at_byte(s.tile, Rows::place(k)),
                  static_cast<const T*>(p.add) + (in_bounds ? int64_t{to} * p.gemm_n + column : 0),
                  in_bounds);
    }
    cp_async_commit();
    cp_async_wait<0>();
  }

  // tile = the rounded sums, or with `plus` tile + the sums, rounded
  __device__ void round(const Sums<T, m, n>& sums, bool plus) const {
    const int lane = threadIdx.x % warp_size;
#pragma unroll
    for (int i = 0; i < sums.ms; ++i)
#pragma unroll
      for (int half = 0; half < 2; ++half)
#pragma unroll
        for (int j = 0; j < sums.ns; ++j) {
          const int place = swizzled_byte<n / 8>(sums.row() + i * 16 + half * 8 + lane / 4,
                                                 sums.column() / 8 + j) +
                            lane % 4 * 4;
          auto* to = static_cast<Elements<T, 2>*>(at_byte(s.tile, place));
          float x = sums.sum[i][j][2 * half], y = sums.sum[i][j][2 * half + 1];
          if (plus) x += to_float(to->at[0]), y += to_float(to->at[1]);
          *to = {from_float<T>(x), from_float<T>(y)};
        }
  }

  // out = tile
  __device__ void store() const {
    const int column = t.n + Rows::chunk() * 8, pixel = t.pixel + Rows::row();
    const bool n_in_bounds = column < p.gemm_n;
    const auto copy = [&](T* to, int k) {
      st_global(reinterpret_cast<uint4*>(to),
                *static_cast<const uint4*>(at_byte(s.tile, Rows::place(k))));
    };
    T* const out = static_cast<T*>(p.out) + column;
    if (!input_gradient || p.geometry.stride == 1) {
      T* to = out + int64_t{pixel} * p.gemm_n;
#pragma unroll
      for (int k = 0; k < rows; ++k, to += Rows::at_once * p.gemm_n)
        if (n_in_bounds && k * Rows::at_once < p.geometry.pixels - pixel) copy(to, k);
    } else {
#pragma unroll 4
      for (int k = 0; k < rows; ++k) {
        const int to = row(pixel + k * Rows::at_once);
        if (to >= 0 && n_in_bounds) copy(out + int64_t{to} * p.gemm_n, k);
      }
    }
  }

  // Computes each column's mean over the tile and its sum of squared differences from the mean,
  // from the rounded values.
  __device__ void moments() const {
    const int left = p.geometry.pixels - t.pixel;
    mean(1.f / static_cast<float>(min(m, left)));
    __syncthreads();
    squares(left);
    __syncthreads();
    const int thread = static_cast<int>(threadIdx.x), c = channel(thread);
    if (thread < n && c >= 0) p.moments.save(part(t.pixel / m) + c, {0, s.mean[thread], total(0)});
    Results<m, n>::MergedMoments::run(
        p.moments, p.parts, t.pixel / m, t.n / n, [&](int column) { return channel(column); },
        s.moments);
  }

  // Stores out = tile, or out = g with a relu_mask, and sums g and g * xhat over the tile.
  __device__ void store_and_sum() const {
    constexpr int ahead = 4;
    static_assert(rows % ahead == 0);
    const int column = t.n + Rows::chunk() * 8, pixel = t.pixel + Rows::row();
    float g_sum[8] = {}, g_d_sum[8] = {};  // of g and of g * (inp - mean)
    if (column < p.gemm_n) {
      const Norm& norm = p.norm;
      const auto mean = load<8>(norm.mean + column), rstd = load<8>(norm.rstd + column);
      const auto c = norm_columns<8>(mean.at, rstd.at, norm.weight, norm.bias, column);
#pragma unroll 1
      for (int first = 0; first < rows; first += ahead) {
        int64_t at[ahead];  // the element; negative: invalid
        Pack<T> x[ahead];
        unsigned relu_mask[ahead];
#pragma unroll
        for (int k = 0; k < ahead; ++k) {
          const int to = row(pixel + (first + k) * Rows::at_once);
          at[k] = int64_t{to} * p.gemm_n + column;
          if (to < 0) at[k] = -1;
          const int64_t from = to < 0 ? column : at[k];
          x[k] = load_pack(static_cast<const T*>(norm.inp) + from);
          if (norm.relu_mask)
            relu_mask[k] = load_relu_mask<8>(norm.relu_mask, norm.rows, max(to, 0), column);
        }
#pragma unroll
        for (int k = 0; k < ahead; ++k)
          if (at[k] >= 0) {
            const auto d =
                load_pack(static_cast<const T*>(at_byte(s.tile, Rows::place(first + k))));
            auto g = d;
#pragma unroll
            for (int i = 0; i < 8; ++i) {
              const float value = to_float(x[k].at[i]);
              const bool on = norm.relu_mask ? relu_mask[k] >> i & 1 : c.normalised(i, value) > 0;
              if (norm.relu && !on) g.at[i] = from_float<T>(0);
              g_sum[i] += to_float(g.at[i]);
              g_d_sum[i] = fmaf(to_float(g.at[i]), value - c.mean[i], g_d_sum[i]);
            }
            store_pack(static_cast<T*>(p.out) + at[k], norm.relu_mask ? g : d);
          }
      }
    }
    add_rows(g_sum, s.of_warps[0]);
    add_rows(g_d_sum, s.of_warps[1]);
    __syncthreads();
    const int thread = static_cast<int>(threadIdx.x), c = channel(thread);
    const int m_tiles = ceil_div(p.geometry.pixels, m),
              of = static_cast<int>(blockIdx.y) * m_tiles + t.pixel / m;
    if (thread < n && c >= 0) p.norm_sums.save(part(of) + c, {total(0), total(1) * p.norm.rstd[c]});
    Results<m, n>::MergedSums::run(
        p.norm_sums, p.parts, of, t.n / n, [&](int i) { return channel(i); }, s.norm_sums);
  }

 private:
  __device__ int row(int pixel) const {
    return out_row<input_gradient>(p.geometry, t.phase, pixel);
  }
  // The channel of the tile's column; -1 past the last.
  __device__ int channel(int column) const { return t.n + column < p.gemm_n ? t.n + column : -1; }
  __device__ float* part(int i) const { return p.parts.partial + int64_t{i} * 2 * p.gemm_n; }

  // Columns' means by mma: ones times the tile, whose rows past the last pixel are zeros.
  __device__ void mean(float count_inverse) const {
    constexpr int columns = n / warps;  // of a warp
    const int warp = threadIdx.x / warp_size, lane = threadIdx.x % warp_size;
    const uint32_t one = cvt_rn_x2<T>(1, 1), ones[4] = {one, one, one, one};
    float sum[columns / 8][4] = {};
#pragma unroll
    for (int i = 0; i < m; i += 16)
#pragma unroll
      for (int j = 0; j < columns / 8; j += 2) {
        uint32_t b[4];
        ldmatrix_x4_trans(
            b, at_byte(s.tile,
                       swizzled_byte<n / 8>(i + lane % 16, warp * columns / 8 + j + lane / 16)));
        mma_m16n8k16<T>(sum[j], ones, b[0], b[1]);
        mma_m16n8k16<T>(sum[j + 1], ones, b[2], b[3]);
      }
#pragma unroll
    for (int j = 0; j < columns / 8; ++j)
      if (lane < 4)
        bv::BAREVISION_GPU::store(
            &s.mean[warp * columns + j * 8 + lane * 2],
            Elements<float, 2>{sum[j][0] * count_inverse, sum[j][1] * count_inverse});
  }

  // Each warp's sums, over its rows, of squared differences from the mean.
  __device__ void squares(int left) const {
    const auto mean = load<8>(&s.mean[Rows::chunk() * 8]);
    float sum[8] = {};
#pragma unroll 4
    for (int k = 0; k < rows; ++k)
      if (k * Rows::at_once < left - Rows::row()) {
        const auto pack = load_pack(static_cast<const T*>(at_byte(s.tile, Rows::place(k))));
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          const float x = to_float(pack.at[i]) - mean.at[i];
          sum[i] += x * x;
        }
      }
    add_rows(sum, s.of_warps[0]);
  }

  // Adds up the rows of each warp.
  __device__ static void add_rows(float (&sum)[8], float (&to)[warps][n]) {
    using OfWarp = RowSums<n / 8, 8>;
    const int first = Rows::chunk() * 8 + OfWarp::add(sum);
#pragma unroll
    for (int i = 0; i < OfWarp::count; ++i) to[threadIdx.x / warp_size][first + i] = sum[i];
  }
  // The tile's sum of column threadIdx.x.
  __device__ float total(int which) const {
    float total = 0;
#pragma unroll
    for (int w = 0; w < warps; ++w) total += s.of_warps[which][w][threadIdx.x];
    return total;
  }
};

}  // namespace bv::BAREVISION_GPU::implicit_gemm

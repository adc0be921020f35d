// The weight gradient in 16 bits on tensor cores, as an implicit matrix product, for convolutions
// (conv_weight_gradient.cu) and for linear layers (linear.cu), which are 1x1 convolutions whose
// pixels are their rows; C and K are multiples of 8:
//   dweight[k, r, s, c] (+)= sum over n, p, q of
//       dout[n, p, q, k] inp[n, p stride - padding + r, q stride - padding + s, c]
//
// Grid:   (tiles of k x c of every tap, parts of the pixels (n, p, q)). The blocks of a tile's taps
//         are neighbours: they read the same rows, from L2.
// Block:  a group of 4 warps multiplies 32 pixels per step; cp.async runs 3 steps ahead
//         (conv_tiles.cuh). Outside the image, inp is zero. If a block has several groups, they
//         divide a step's pixels.
// Warp:   a quarter of the tile's sums, in registers. Both operands have pixels, which are gemm_k,
//         as rows, so ldmatrix transposes them into mma's fragments.
// Parts store their sums in the workspace, [parts, K, R, S, C], and finish_column_sums adds these
// up; a single part writes to dweight directly.
#pragma once
#include "kernels/cuda/column_sums.cuh"
#include "kernels/gemm/conv_tiles.cuh"

namespace bv::BAREVISION_GPU::weight_gradient {

constexpr int threads = 128, warps_m = 2, warps_n = 2;  // of a group
constexpr int stages = 4, step_pixels = 32;

// out[part, k, tap, c] (+)= sum over the part's pixels of dout[pixel, k] inp[pixel + tap, c]
struct WeightProduct {
  Geometry geometry;
  float* out;
  float* dbias;      // [part, K], for a linear layer; else null
  int64_t part;      // floats from one part's sums to the next's
  const void* dout;  // [pixels, K]
  const void* inp;   // [N, H, W, C]
  int C, K;
  int group;  // channels per group; used only with several groups
  int n_tiles, steps_of_part;
  bool accumulate;
};

struct Tile {
  int k, c, r, s;             // the tile's first k and c, its tap
  int first_step, last_step;  // of the part: [first, last)
};

// taps: how many taps of a row of the filter a block multiplies.
template <int m, int n, int taps = 1>
__device__ Tile tile_of_block(const WeightProduct& p) {
  const Geometry& g = p.geometry;
  const int shares = g.R * g.S / taps, tap = blockIdx.x % shares * taps, tile = blockIdx.x / shares;
  const int steps = ceil_div(g.pixels, step_pixels), first = blockIdx.y * p.steps_of_part;
  return {.k = tile / p.n_tiles * m,
          .c = tile % p.n_tiles * n,
          .r = tap / g.S,
          .s = tap % g.S,
          .first_step = first,
          .last_step = min(first + p.steps_of_part, steps)};
}

template <int m, int n>
struct Stage {
  alignas(128) uint4 dout[step_pixels * m / 8];  // [pixels, m]
  uint4 inp[step_pixels * n / 8];                // [pixels, n]
};

// ---- Load ---------------------------------------------------------------------------------------
template <int m, int groups>
__device__ void load_dout(const WeightProduct& p, const Tile& t, int pixel, uint4* to) {
  using Rows = RowCopies<groups * threads, m / 8>;
  const bool k_in_bounds = t.k + Rows::chunk() * 8 < p.K;
  const auto* dout = static_cast<const uint4*>(p.dout) + (t.k / 8 + Rows::chunk());
#pragma unroll
  for (int i = 0; i < step_pixels / Rows::at_once; ++i) {
    const int row = pixel + Rows::row() + i * Rows::at_once;
    const bool in_bounds = k_in_bounds && row < p.geometry.pixels;
    cp_async_16(at_byte(to, Rows::place(i)), dout + (in_bounds ? int64_t{row} * (p.K / 8) : 0),
                in_bounds);
  }
}

template <int n, int groups>
__device__ void load_inp(const WeightProduct& p, const Tile& t, int pixel, uint4* to) {
  using Rows = RowCopies<groups * threads, n / 8>;
  const Geometry& g = p.geometry;
  const bool c_in_bounds = t.c + Rows::chunk() * 8 < p.C;
  const auto* inp = static_cast<const uint4*>(p.inp) + (t.c / 8 + Rows::chunk());
#pragma unroll
  for (int i = 0; i < step_pixels / Rows::at_once; ++i) {
    const int row = pixel + Rows::row() + i * Rows::at_once;
    const Pixel at(g, row < g.pixels ? row : 0);
    const int h = at.y * g.stride - g.padding + t.r, w = at.x * g.stride - g.padding + t.s;
    const bool in_bounds = c_in_bounds && row < g.pixels && g.in_bounds(h, w);
    cp_async_16(at_byte(to, Rows::place(i)),
                inp + (in_bounds ? (int64_t{at.image * g.H + h} * g.W + w) * (p.C / 8) : 0),
                in_bounds);
  }
}

// ---- Multiply -----------------------------------------------------------------------------------
// Calls use(a, i) with dout's fragment of rows i * 16.
template <int groups, int m, int n, class Sums, class Use>
__device__ void multiply(Sums& sums, const Stage<m, n>& from, Use use) {
  const int lane = threadIdx.x % warp_size;
  const int k = groups == 1 ? 0 : threadIdx.x / threads * (step_pixels / groups);
  const int dout = swizzled_byte<m / 8>(lane / 16 * 8 + lane % 8, Sums::row() / 8 + lane / 8 % 2);
  const int inp = swizzled_byte<n / 8>(lane % 16, Sums::column() / 8 + lane / 16);
  const void* const dout_rows = at_byte(from.dout, k * m * 2);
  const void* const inp_rows = at_byte(from.inp, k * n * 2);
  sums.template multiply<step_pixels / 16 / groups>(
      [&](uint32_t(&a)[4], int k16, int i) {
        ldmatrix_x4_trans(a, at_byte(dout_rows, (dout ^ i * 32) + k16 * 16 * m * 2));
        use(a, i);
      },
      [&](uint32_t(&b)[4], int k16, int j) {
        ldmatrix_x4_trans(b, at_byte(inp_rows, (inp ^ j * 16) + k16 * 16 * n * 2));
      });
}

// sums += the product over the part's pixels.
template <int groups, int m, int n, class Sums, class Use>
__device__ void sum_pixels(Sums& sums, Stage<m, n> (&stage)[stages], const WeightProduct& p,
                           const Tile& t, Use use) {
  pipeline(
      stage, t.first_step, t.last_step,
      [&](int step, Stage<m, n>& to) {
        const int pixel = step * step_pixels;
        load_dout<m, groups>(p, t, pixel, to.dout);
        load_inp<n, groups>(p, t, pixel, to.inp);
      },
      [&](const Stage<m, n>& from) { multiply<groups>(sums, from, use); });
}

enum class Layer { conv, groups, linear };

// A convolution's parts are p.part apart, too, but recomputing the distance saves 45 registers.
template <Layer layer = Layer::conv, class Sums>
__device__ void store_sums(const WeightProduct& p, const Tile& t, const Sums& sums) {
  const Geometry& g = p.geometry;
  const int lane = threadIdx.x % warp_size, depth = layer == Layer::groups ? p.group : p.C;
  const int64_t filter = int64_t{g.R} * g.S * depth;
  const int64_t part =
      layer == Layer::linear ? blockIdx.y * p.part : int64_t{blockIdx.y} * p.K * filter;
  float* const out = p.out + part + (t.r * g.S + t.s) * depth;
#pragma unroll
  for (int i = 0; i < Sums::ms; ++i)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int k = t.k + Sums::row() + i * 16 + half * 8 + lane / 4;
#pragma unroll
      for (int j = 0; j < Sums::ns; ++j) {
        int c = t.c + Sums::column() + j * 8 + lane % 4 * 2;
        if (k >= p.K || c >= p.C) continue;
        if (layer == Layer::groups) {  // depth is a power of two
          if ((k ^ c) >= depth) continue;
          c &= depth - 1;
        }
        float* to = out + k * filter + c;
        Elements<float, 2> x{sums.sum[i][j][2 * half], sums.sum[i][j][2 * half + 1]};
        if (p.accumulate) {
          const auto before = load<2>(to);
          x.at[0] += before.at[0], x.at[1] += before.at[1];
        }
        store(to, x);
      }
    }
}

}  // namespace bv::BAREVISION_GPU::weight_gradient

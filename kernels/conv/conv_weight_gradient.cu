// The weight's gradient of a convolution in 16 bits on tensor cores, as an implicit matrix product
// (C and K are multiples of 8; one group, or groups of 4, 8, 16 or 32 channels of each):
//   dweight[k, r, s, c] (+)= sum over n, p, q of
//       dout[n, p, q, k] inp[n, p stride - padding + r, q stride - padding + s, c]
// and that of a linear layer, which is a 1x1 convolution whose pixels are its rows, with
//   dbias[k] (+)= sum over the pixels of dout[pixel, k]
// on the way: the blocks of the first c see each row of dout once, and multiply it by a column of
// ones too. dweight, dbias = or += by accumulate. With groups, c counts those of k's group.
//
// Grid:   (tiles of k x c of every tap, parts of the pixels (n, p, q)). The blocks of a tile's taps
//         are neighbours: they read the same rows, from L2. Of a 3x3 with stride 1 a block has all
//         three taps of a row of the filter, for which it loads dout and inp once.
// Block:  a group of 4 warps multiplies 32 pixels per step, with cp.async 3 steps ahead
//         (conv_tiles.cuh). Outside the image, inp is zeros. Of a linear layer two groups share the
//         tile, each with half of the pixels, and add their sums in the end: as many warps as of
//         two blocks, with half the parts.
// Warp:   a quarter of the tile's sums, in registers. Both operands have the pixels, which are
//         gemm_k, in rows: ldmatrix transposes them into mma's fragments. With groups a tile has
//         the same k and c, and the warps have what lies along its diagonal: blocks of 16 or 32
//         channels, which hold whole groups.
// Parts write their sums to the workspace, [parts, K, R, S, C], each part's dbias behind it, and a
// second kernel adds these in order; a single part adds to dweight and dbias directly.
// Limited by L2. Resources: tests/kernels/resources.txt
#include "kernels/conv/conv.cuh"
#include "kernels/conv/conv_tiles.cuh"
#include "kernels/cuda/column_sums.cuh"

namespace bv::BAREVISION_GPU {
namespace {

constexpr int threads = 128, warps_m = 2, warps_n = 2;  // of a group
constexpr int stages = 4, step_pixels = 32;

// out[part, k, tap, c] (+)= sum over the part's pixels of dout[pixel, k] inp[pixel + tap, c]
struct Product {
  Geometry geometry;
  float* out;
  float* dbias;      // [part, K]: of a linear layer; else null
  int64_t part;      // floats from one part's sums to the next's
  const void* dout;  // [pixels, K]
  const void* inp;   // [N, H, W, C]
  int C, K;
  int group;  // channels of one, where there are several
  int n_tiles, steps_of_part;
  bool accumulate;
};

struct Tile {
  int k, c, r, s;             // the first ones, and the tap
  int first_step, last_step;  // of the part: [first, last)
};

// taps: that a block multiplies, of a row of the filter.
template <int m, int n, int taps = 1>
__device__ Tile tile_of_block(const Product& p) {
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
template <int m, int n>
struct Shared {
  Stage<m, n> stage[stages];
};

// ---- Load ---------------------------------------------------------------------------------------
template <int m, int groups>
__device__ void load_dout(const Product& p, const Tile& t, int pixel, uint4* to) {
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
__device__ void load_inp(const Product& p, const Tile& t, int pixel, uint4* to) {
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
// use(a, i): of dout's fragment of rows i * 16.
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
__device__ void sum_pixels(Sums& sums, Stage<m, n> (&stage)[stages], const Product& p,
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

enum class Of { conv, groups, linear };

// A convolution's parts are p.part apart too; computed, that takes 45 registers fewer.
template <Of of = Of::conv, class Sums>
__device__ void store(const Product& p, const Tile& t, const Sums& sums) {
  const Geometry& g = p.geometry;
  const int lane = threadIdx.x % warp_size, depth = of == Of::groups ? p.group : p.C;
  const int64_t filter = int64_t{g.R} * g.S * depth;
  const int64_t part = of == Of::linear ? blockIdx.y * p.part : int64_t{blockIdx.y} * p.K * filter;
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
        if (of == Of::groups) {  // (powers of two)
          if ((k ^ c) >= depth) continue;
          c &= depth - 1;
        }
        float* to = out + k * filter + c;
        Elements<float, 2> x{sums.sum[i][j][2 * half], sums.sum[i][j][2 * half + 1]};
        if (p.accumulate) {
          const auto before = load<2>(to);
          x.at[0] += before.at[0], x.at[1] += before.at[1];
        }
        bv::BAREVISION_GPU::store(to, x);
      }
    }
}

template <class T, int m, int n>
__global__ void __launch_bounds__(threads, m + n > 128 ? 2 : 4) conv_backward_weight(Product p) {
  auto& s = shared<Shared<m, n>>();
  const Tile t = tile_of_block<m, n>(p);
  WarpTile<T, m, n, warps_m, warps_n> sums;
  sum_pixels<1>(sums, s.stage, p, t, [](const uint32_t(&)[4], int) {});
  store(p, t, sums);
}

// ---- Groups -------------------------------------------------------------------------------------
constexpr int groups_tile = 64;

// The tile's blocks of `width` channels along the diagonal, by warps: of 16 x 16 or of 32 x 16.
template <class T, int width>
struct DiagonalSums : WarpTile<T, groups_tile, groups_tile, groups_tile / width, 4> {
  using Base = WarpTile<T, groups_tile, groups_tile, groups_tile / width, 4>;
  __device__ static int column() { return Base::row() + Base::column(); }
};

template <class T, int width>
__global__ void __launch_bounds__(threads, 4) conv_backward_weight_groups(Product p) {
  auto& s = shared<Shared<groups_tile, groups_tile>>();
  Tile t = tile_of_block<groups_tile, groups_tile>(p);
  t.c = t.k;
  DiagonalSums<T, width> sums;
  sum_pixels<1>(sums, s.stage, p, t, [](const uint32_t(&)[4], int) {});
  store<Of::groups>(p, t, sums);
}

// ---- A row of three taps ------------------------------------------------------------------------
// With a 3x3 filter, stride 1 and padding 1, out is as large as inp, so that the pixels' places
// in inp follow each other, and each tap of a row reads those of the one before, one further on: a
// block loads them once, with one more at either end, for three times the products. At the ends of
// an image's row, where that would be a pixel of the next, a tap reads zeros instead.
constexpr int row_taps = 3, row_tile = 64;
using RowLoads = RowCopies<threads, row_tile / 8>;
constexpr int row_pixels = step_pixels + 2;  // of inp

struct RowStage {
  alignas(128) uint4 dout[step_pixels * row_tile / 8];  // [pixels, row_tile]
  uint4 inp[row_pixels * row_tile / 8];                 // [one before, pixels, one after; row_tile]
};
struct RowShared {
  RowStage stage[stages];
  alignas(128) uint4 zeros[row_tile / 8];
};

// m + by, where 0 <= m, by < n
__device__ inline int add_modulo(int m, int by, int n) { return m + by < n ? m + by : m + by - n; }

// Copies inp's pixels from one step to the next.
struct RowLoader {
  const uint4* inp;  // this thread's chunk of the pixel before the step's first
  int pixel;         // that one
  int in_image;      // of it, less this thread's row; modulo an image
  int first, last;   // where in an image the filter's row r meets inp: [first, last)
  int step_in_image;
  bool c_in_bounds;

  __device__ RowLoader(const Product& p, const Tile& t) {
    const Geometry& g = p.geometry;
    const int image = g.Y * g.X;
    c_in_bounds = t.c + RowLoads::chunk() * 8 < p.C;
    pixel = t.first_step * step_pixels - 1 + RowLoads::row();
    inp = static_cast<const uint4*>(p.inp) + (int64_t{pixel} + (t.r - 1) * g.X) * (p.C / 8) +
          t.c / 8 + RowLoads::chunk();
    in_image = pixel < 0 ? image - 1 : pixel - g.by_image.divide(pixel) * image;
    first = t.r == 0 ? g.X : 0, last = t.r == 2 ? image - g.X : image;
    step_in_image = RowLoads::at_once % image;
  }

  __device__ void load(const Product& p, uint4* to) {
    const Geometry& g = p.geometry;
#pragma unroll
    for (int i = 0; i < ceil_div(row_pixels, RowLoads::at_once); ++i) {
      const int row = i * RowLoads::at_once;
      if (row >= step_pixels && row + RowLoads::row() >= row_pixels) break;
      const bool in_bounds = c_in_bounds && in_image >= first && in_image < last &&
                             static_cast<unsigned>(pixel + row) < static_cast<unsigned>(g.pixels);
      cp_async_16(at_byte(to, RowLoads::place(i)), inp + int64_t{row} * (p.C / 8), in_bounds);
      if (row < step_pixels) in_image = add_modulo(in_image, step_in_image, g.Y * g.X);
    }
    pixel += step_pixels;
    inp += int64_t{step_pixels} * (p.C / 8);
  }
};

template <class T>
using TapSums = WarpTile<T, row_tile, row_tile, warps_m, warps_n>;

template <class T, class Sums>
struct RowMultiplier {
  int x, image_row;   // of this lane's pixel in its row of an image; the row's length
  int dout;           // bytes from a stage's dout
  int inp[row_taps];  // from its inp

  __device__ RowMultiplier(const Product& p, const Tile& t) : image_row(p.geometry.X) {
    const int lane = threadIdx.x % warp_size, row = lane % 16;
    const int chunk = Sums::column() / 8 + lane / 16;
    x = Pixel(p.geometry, t.first_step * step_pixels + row).x;
    dout = swizzled_byte<row_tile / 8>(lane / 16 * 8 + lane % 8, Sums::row() / 8 + lane / 8 % 2);
#pragma unroll
    for (int tap = 0; tap < row_taps; ++tap)
      inp[tap] = swizzled_byte<row_tile / 8>(row + tap, chunk);
  }

  __device__ void multiply(Sums (&sums)[row_taps], const RowStage& from, const RowShared& s) {
    const int inp_of_stage = static_cast<int>(reinterpret_cast<const char*>(from.inp) -
                                              reinterpret_cast<const char*>(&s));
#pragma unroll
    for (int k = 0; k < step_pixels / 16; ++k) {
      const int row = k * 16 * row_tile * 2;
      uint32_t a[Sums::ms][4];
#pragma unroll
      for (int i = 0; i < Sums::ms; ++i)
        ldmatrix_x4_trans(a[i], at_byte(from.dout, (dout ^ i * 32) + row));
#pragma unroll
      for (int tap = 0; tap < row_taps; ++tap) {
        const bool outside = (tap == 0 && x == 0) || (tap == 2 && x == image_row - 1);
        // Zeros of the same banks, so that they meet none of the other rows.
        const int zeros = static_cast<int>(offsetof(RowShared, zeros)) + inp[tap] % (row_tile * 2);
        const int at = outside ? zeros : inp_of_stage + inp[tap] + row;
#pragma unroll
        for (int j = 0; j < Sums::ns; j += 2) {
          uint32_t b[4];
          ldmatrix_x4_trans(b, at_byte(&s, at ^ j * 16));
#pragma unroll
          for (int i = 0; i < Sums::ms; ++i) {
            mma_m16n8k16<T>(sums[tap].sum[i][j], a[i], b[0], b[1]);
            mma_m16n8k16<T>(sums[tap].sum[i][j + 1], a[i], b[2], b[3]);
          }
        }
      }
      x = add_modulo(x, 16 % image_row, image_row);
    }
  }
};

// What a block adds up, and where it goes.
template <class T, Of of, class Sums>
__device__ void row_of_taps(const Product& p, Tile t, Sums (&sums)[row_taps]) {
  auto& s = shared<RowShared>();
  RowLoader loader(p, t);
  RowMultiplier<T, Sums> multiplier(p, t);
  if (threadIdx.x < row_tile / 8) s.zeros[threadIdx.x] = {0, 0, 0, 0};
  pipeline(
      s.stage, t.first_step, t.last_step,
      [&](int step, RowStage& to) {
        load_dout<row_tile, 1>(p, t, step * step_pixels, to.dout);
        loader.load(p, to.inp);
      },
      [&](const RowStage& from) { multiplier.multiply(sums, from, s); });
#pragma unroll
  for (int tap = 0; tap < row_taps; ++tap) {
    t.s = tap;
    store<of>(p, t, sums[tap]);
  }
}

// Turing's copies go through registers.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
constexpr int row_blocks = 2;
#else
constexpr int row_blocks = 3;
#endif
template <class T>
__global__ void __launch_bounds__(threads, row_blocks) conv_backward_weight_row(Product p) {
  TapSums<T> sums[row_taps];
  row_of_taps<T, Of::conv>(p, tile_of_block<row_tile, row_tile, row_taps>(p), sums);
}

template <class T, int width>
__global__ void __launch_bounds__(threads, row_blocks + 1)
    conv_backward_weight_groups_row(Product p) {
  Tile t = tile_of_block<row_tile, row_tile, row_taps>(p);
  t.c = t.k;
  DiagonalSums<T, width> sums[row_taps];
  row_of_taps<T, Of::groups>(p, t, sums);
}

// ---- Of a linear layer --------------------------------------------------------------------------
constexpr int groups = 2, tile = 128;
template <class T>
using LinearSums = WarpTile<T, tile, tile, warps_m, warps_n>;

struct LinearShared {
  union {
    Stage<tile, tile> stage[stages];
    Pack<float> sums[tile * tile / 4];  // in the end, the second group's
  };
};

// The second group's sums are added to the first's.
template <int rows, int columns>
__device__ void add_groups(float (&sum)[rows][columns][4], LinearShared& s) {
  const bool second = threadIdx.x >= threads;
  Pack<float>* const mine = s.sums + threadIdx.x % threads;
  __syncthreads();  // all are done with what is there
#pragma unroll
  for (int i = 0; i < rows * columns; ++i) {
    Pack<float> x;
#pragma unroll
    for (int e = 0; e < 4; ++e) x.at[e] = sum[i / columns][i % columns][e];
    if (second) mine[i * threads] = x;
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < rows * columns; ++i)
    if (!second) {
      const Pack<float> x = mine[i * threads];
#pragma unroll
      for (int e = 0; e < 4; ++e) sum[i / columns][i % columns][e] += x.at[e];
    }
}

template <class T>
__global__ void __launch_bounds__(groups* threads, 1) linear_backward_weight(Product p) {
  using Sums = LinearSums<T>;
  auto& s = shared<LinearShared>();
  const Tile t = tile_of_block<tile, tile>(p);
  const bool first_column = t.c == 0 && Sums::column() == 0;  // all of a warp
  const uint32_t ones = cvt_rn_x2<T>(1, 1);
  Sums sums;
  float dbias[Sums::ms][1][4] = {};  // equal columns: [0] and [2] are of rows lane / 4 and that + 8
  sum_pixels<groups>(sums, s.stage, p, t, [&](const uint32_t(&a)[4], int i) {
    if (first_column) mma_m16n8k16<T>(dbias[i][0], a, ones, ones);
  });
  add_groups(sums.sum, s);
  if (threadIdx.x < threads) store<Of::linear>(p, t, sums);
  if (t.c > 0) return;
  add_groups(dbias, s);
  if (threadIdx.x >= threads || !first_column || threadIdx.x % 4 != 0) return;
#pragma unroll
  for (int i = 0; i < 2 * Sums::ms; ++i) {
    const int k = t.k + Sums::row() + i * 8 + threadIdx.x % warp_size / 4;
    if (k >= p.K) continue;
    float& to = p.dbias[blockIdx.y * p.part + k];
    to = p.accumulate ? to + dbias[i / 2][0][i % 2 * 2] : dbias[i / 2][0][i % 2 * 2];
  }
}

// ---- Launch -------------------------------------------------------------------------------------
struct Plan {
  bool row;   // three taps a block
  int width;  // of the blocks on a tile's diagonal, with groups
  int m, n;   // of the tile
  int tiles, n_tiles;
  PixelParts parts;
};

Plan plan(const DeviceProps& props, const ConvShape& s) {
  Plan p{};
  p.row = s.R == 3 && s.S == 3 && s.stride == 1 && s.padding == 1;
  p.width = s.groups == 1 ? 0 : diagonal_width(s.C / s.groups);
  const bool small = p.row || p.width;
  p.m = s.K > 64 && !small ? 128 : 64;
  p.n = s.K > 64 && s.C > 64 && !small ? 128 : 64;
  p.n_tiles = p.width ? 1 : ceil_div(s.C, p.n);
  p.tiles = ceil_div(s.K, p.m) * p.n_tiles * s.R * (p.row ? 1 : s.S);
  const int steps = ceil_div(s.N * s.P() * s.Q(), step_pixels);
  const int blocks_per_sm = p.n == 128 ? 2 : p.m == 128 || (p.row && !p.width) ? 3 : 4;
  p.parts = parts_of_pixels(s, steps, p.tiles, props.sms * blocks_per_sm);
  return p;
}

template <class T, int m, int n>
void start(const Plan& plan, const Product& product, cudaStream_t stream) {
  launch<conv_backward_weight<T, m, n>>(dim3(plan.tiles, plan.parts.count), threads,
                                        sizeof(Shared<m, n>), stream, product);
}

template <class T, int width>
void start_groups(const Plan& plan, const Product& product, cudaStream_t stream) {
  const dim3 grid(plan.tiles, plan.parts.count);
  if (plan.row)
    launch<conv_backward_weight_groups_row<T, width>>(grid, threads, sizeof(RowShared), stream,
                                                      product);
  else
    launch<conv_backward_weight_groups<T, width>>(
        grid, threads, sizeof(Shared<groups_tile, groups_tile>), stream, product);
}

ConvShape as_conv(const LinearShape& s) {
  return {.N = 1, .H = 1, .W = s.M, .C = s.K, .K = s.N, .R = 1, .S = 1, .stride = 1, .padding = 0};
}

// A block fills a multiprocessor; a part of fewer steps than 16 costs less than adding parts up.
PixelParts linear_parts(const DeviceProps& props, const LinearShape& s) {
  return parts_of_pixels(as_conv(s), ceil_div(s.M, step_pixels),
                         ceil_div(s.N, tile) * ceil_div(s.K, tile), props.sms, 16);
}

}  // namespace

size_t linear_weight_gradient_bytes(const DeviceProps& props, const LinearShape& s) {
  const PixelParts parts = linear_parts(props, s);
  return parts.bytes(as_conv(s)) + (parts.count == 1 ? 0 : sizeof(float) * parts.count * s.N);
}

void linear_weight_gradient(const DeviceProps& props, const LinearBackwardWeight& op,
                            cudaStream_t stream) {
  const ConvShape s = as_conv(op.shape);
  const PixelParts parts = linear_parts(props, op.shape);
  const int64_t weights = int64_t{s.K} * s.C;
  const bool direct = parts.count == 1;
  auto* const out = direct ? op.dweight : static_cast<float*>(op.workspace);
  const Product product{.geometry = Geometry::forward(s),
                        .out = out,
                        .dbias = direct ? op.dbias : out + weights,
                        .part = weights + s.K,
                        .dout = op.dout,
                        .inp = op.inp,
                        .C = s.C,
                        .K = s.K,
                        .n_tiles = ceil_div(s.C, tile),
                        .steps_of_part = parts.steps,
                        .accumulate = direct && op.accumulate};
  by_16_bits(op.dtype, [&]<class T>() {
    launch<linear_backward_weight<T>>(dim3(ceil_div(s.K, tile) * product.n_tiles, parts.count),
                                      groups * threads, sizeof(LinearShared), stream, product);
  });
  if (!direct)
    finish_column_sums({.out = op.dweight,
                        .out2 = op.dbias,
                        .partial = out,
                        .blocks = parts.count,
                        .C = weights,
                        .C2 = s.K,
                        .accumulate = op.accumulate},
                       stream);
}

size_t conv_weight_gradient_bytes(const DeviceProps& props, const ConvBackwardWeight& op) {
  return plan(props, op.shape).parts.bytes(op.shape);
}

void conv_weight_gradient(const DeviceProps& props, const ConvBackwardWeight& op,
                          cudaStream_t stream) {
  const ConvShape& s = op.shape;
  const Plan by = plan(props, s);
  const bool direct = by.parts.count == 1;
  const Product product{.geometry = Geometry::forward(s),
                        .out = direct ? op.dweight : static_cast<float*>(op.workspace),
                        .part = static_cast<int64_t>(s.weight_count()),
                        .dout = op.dout,
                        .inp = op.inp,
                        .C = s.C,
                        .K = s.K,
                        .group = s.C / s.groups,
                        .n_tiles = by.n_tiles,
                        .steps_of_part = by.parts.steps,
                        .accumulate = direct && op.accumulate};
  by_16_bits(op.dtype, [&]<class T>() {
    if (by.width == 16)
      start_groups<T, 16>(by, product, stream);
    else if (by.width == 32)
      start_groups<T, 32>(by, product, stream);
    else if (by.row)
      launch<conv_backward_weight_row<T>>(dim3(by.tiles, by.parts.count), threads,
                                          sizeof(RowShared), stream, product);
    else if (by.m == 64)
      start<T, 64, 64>(by, product, stream);
    else if (by.n == 64)
      start<T, 128, 64>(by, product, stream);
    else
      start<T, 128, 128>(by, product, stream);
  });
  if (!direct)
    finish_column_sums({.out = op.dweight,
                        .partial = product.out,
                        .blocks = by.parts.count,
                        .C = product.part,
                        .accumulate = op.accumulate},
                       stream);
}

}  // namespace bv::BAREVISION_GPU

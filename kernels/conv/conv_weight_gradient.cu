// The weight gradient of a convolution in 16 bits on tensor cores (weight_gradient.cuh), with one
// group, or C = K in groups of 4, 8, 16 or 32 channels. dweight = or += per accumulate. With
// groups, c counts the channels of k's group.
//
// Block:  for a 3x3 filter with stride 1 and padding 1, computes all three taps of a row of the
//         filter and loads dout and inp once for them.
// Warp:   with groups, a tile has the same channels along k and c, and the warps compute only the
//         blocks of 16 or 32 channels along its diagonal, which hold whole groups.
// Limited by L2. Resources: tests/kernels/resources.txt
#include "kernels/conv/conv.cuh"
#include "kernels/gemm/weight_gradient.cuh"

namespace bv::BAREVISION_GPU {
namespace {

using namespace weight_gradient;

template <int m, int n>
struct Shared {
  Stage<m, n> stage[stages];
};

template <class T, int m, int n>
__global__ void __launch_bounds__(threads, m + n > 128 ? 2 : 4)
    conv_backward_weight(WeightProduct p) {
  await_kernel_ahead();
  auto& s = shared<Shared<m, n>>();
  const Tile t = tile_of_block<m, n>(p);
  WarpTile<T, m, n, warps_m, warps_n> sums;
  sum_pixels<1>(sums, s.stage, p, t, [](const uint32_t(&)[4], int) {});
  store_sums(p, t, sums);
}

// ---- Groups -------------------------------------------------------------------------------------
constexpr int groups_tile = 64;

// A warp's part of the tile's diagonal blocks: a block of 16 x 16, or half a block of 32 x 32.
template <class T, int width>
struct DiagonalSums : WarpTile<T, groups_tile, groups_tile, groups_tile / width, 4> {
  using Base = WarpTile<T, groups_tile, groups_tile, groups_tile / width, 4>;
  __device__ static int column() { return Base::row() + Base::column(); }
};

template <class T, int width>
__global__ void __launch_bounds__(threads, 4) conv_backward_weight_groups(WeightProduct p) {
  await_kernel_ahead();
  auto& s = shared<Shared<groups_tile, groups_tile>>();
  Tile t = tile_of_block<groups_tile, groups_tile>(p);
  t.c = t.k;
  DiagonalSums<T, width> sums;
  sum_pixels<1>(sums, s.stage, p, t, [](const uint32_t(&)[4], int) {});
  store_sums<Layer::groups>(p, t, sums);
}

// ---- A row of three taps ------------------------------------------------------------------------
// With a 3x3 filter, stride 1 and padding 1, out is as large as inp, so the pixels are consecutive
// in inp, and each tap of a row reads the previous tap's pixels, shifted by one: a block loads them
// once, with one more at either end, and multiplies them for three taps. At the ends of an image's
// row, where a shifted pixel would be in another row, a tap reads zeros instead.
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

// (m + by) % n for 0 <= m, by < n
__device__ inline int add_modulo(int m, int by, int n) { return m + by < n ? m + by : m + by - n; }

// Copies the pixels of inp that a step needs, step after step.
struct RowLoader {
  const uint4* inp;  // this thread's chunk of the pixel r - 1 rows below `pixel`
  int pixel;         // this thread's first; a step's rows begin one pixel early
  int in_image;      // pixel's index in its image
  int first, last;   // pixels of an image whose row r of taps is in bounds: [first, last)
  int step_in_image;
  bool c_in_bounds;

  __device__ RowLoader(const WeightProduct& p, const Tile& t) {
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

  __device__ void load(const WeightProduct& p, uint4* to) {
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
  int x, image_row;   // column of this lane's pixel; length of an image's row
  int dout;           // byte offset in a stage's dout
  int inp[row_taps];  // byte offsets in a stage's inp

  __device__ RowMultiplier(const WeightProduct& p, const Tile& t) : image_row(p.geometry.X) {
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
        // Zeros in the same banks, so that they conflict with no other row.
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

// Computes and stores a block's sums.
template <class T, Layer layer, class Sums>
__device__ void row_of_taps(const WeightProduct& p, Tile t, Sums (&sums)[row_taps]) {
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
    store_sums<layer>(p, t, sums[tap]);
  }
}

// On Turing, copies pass through registers, so fewer blocks fit.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
constexpr int row_blocks = 2;
#else
constexpr int row_blocks = 3;
#endif
template <class T>
__global__ void __launch_bounds__(threads, row_blocks) conv_backward_weight_row(WeightProduct p) {
  await_kernel_ahead();
  TapSums<T> sums[row_taps];
  row_of_taps<T, Layer::conv>(p, tile_of_block<row_tile, row_tile, row_taps>(p), sums);
}

template <class T, int width>
__global__ void __launch_bounds__(threads, row_blocks + 1)
    conv_backward_weight_groups_row(WeightProduct p) {
  await_kernel_ahead();
  Tile t = tile_of_block<row_tile, row_tile, row_taps>(p);
  t.c = t.k;
  DiagonalSums<T, width> sums[row_taps];
  row_of_taps<T, Layer::groups>(p, t, sums);
}

// ---- Launch -------------------------------------------------------------------------------------
struct Plan {
  bool row;   // three taps per block
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
void start(const Plan& plan, const WeightProduct& product, cudaStream_t stream) {
  launch<conv_backward_weight<T, m, n>>(dim3(plan.tiles, plan.parts.count), threads,
                                        sizeof(Shared<m, n>), stream, product);
}

template <class T, int width>
void start_groups(const Plan& plan, const WeightProduct& product, cudaStream_t stream) {
  const dim3 grid(plan.tiles, plan.parts.count);
  if (plan.row)
    launch<conv_backward_weight_groups_row<T, width>>(grid, threads, sizeof(RowShared), stream,
                                                      product);
  else
    launch<conv_backward_weight_groups<T, width>>(
        grid, threads, sizeof(Shared<groups_tile, groups_tile>), stream, product);
}

}  // namespace

size_t conv_weight_gradient_bytes(const DeviceProps& props, const ConvBackwardWeight& op) {
  return plan(props, op.shape).parts.bytes(op.shape);
}

void conv_weight_gradient(const DeviceProps& props, const ConvBackwardWeight& op,
                          cudaStream_t stream) {
  const ConvShape& s = op.shape;
  const Plan by = plan(props, s);
  const bool direct = by.parts.count == 1;
  const WeightProduct product{.geometry = Geometry::forward(s),
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
                        .C = product.part,
                        .blocks = by.parts.count,
                        .accumulate = op.accumulate},
                       stream);
}

}  // namespace bv::BAREVISION_GPU

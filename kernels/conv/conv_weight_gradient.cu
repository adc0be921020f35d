// The weight's gradient of a convolution in 16 bits on tensor cores, as an implicit matrix product
// (one group; C and K are multiples of 8):
//   dweight[k, r, s, c] (+)= sum over n, p, q of
//       dout[n, p, q, k] inp[n, p stride - padding + r, q stride - padding + s, c]
// dweight = or += by accumulate.
//
// Grid:   (tiles of k x c of every tap, parts of the pixels (n, p, q)). The blocks of a tile's taps
//         are neighbours: they read the same rows, from L2.
// Block:  4 warps multiply 32 pixels per step, with cp.async 3 steps ahead (conv_tiles.cuh).
//         Outside the image, inp is zeros.
// Warp:   a quarter of the tile's sums, in registers. Both operands have the pixels, which are
//         gemm_k, in rows: ldmatrix transposes them into mma's fragments.
// Parts write their sums to the workspace, [parts, K, R, S, C], and a second kernel adds these in
// order; a single part adds to dweight directly.
// Limited by L2. Resources: tests/kernels/resources.txt
#include "kernels/conv/conv.cuh"
#include "kernels/conv/conv_tiles.cuh"

namespace bv::BAREVISION_GPU {
namespace {

constexpr int threads = 128, warps_m = 2, warps_n = 2;
constexpr int stages = 4, step_pixels = 32;

// out[part, k, tap, c] (+)= sum over the part's pixels of dout[pixel, k] inp[pixel + tap, c]
struct Product {
  Geometry geometry;
  float* out;
  const void* dout;  // [pixels, K]
  const void* inp;   // [N, H, W, C]
  int C, K;
  int n_tiles, steps_of_part;
  bool accumulate;
};

struct Tile {
  int k, c, r, s;             // the first ones, and the tap
  int first_step, last_step;  // of the part: [first, last)
};

template <int m, int n>
__device__ Tile tile_of_block(const Product& p) {
  const Geometry& g = p.geometry;
  const int taps = g.R * g.S, tap = blockIdx.x % taps, tile = blockIdx.x / taps;
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
template <int m>
__device__ void load_dout(const Product& p, const Tile& t, int pixel, uint4* to) {
  using Rows = RowCopies<threads, m / 8>;
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

template <int n>
__device__ void load_inp(const Product& p, const Tile& t, int pixel, uint4* to) {
  using Rows = RowCopies<threads, n / 8>;
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
template <int m, int n, class Sums>
__device__ void multiply(Sums& sums, const Stage<m, n>& from) {
  const int lane = threadIdx.x % warp_size;
  const int dout = swizzled_byte<m / 8>(lane / 16 * 8 + lane % 8, Sums::row() / 8 + lane / 8 % 2);
  const int inp = swizzled_byte<n / 8>(lane % 16, Sums::column() / 8 + lane / 16);
  sums.template multiply<step_pixels / 16>(
      [&](uint32_t(&a)[4], int k, int i) {
        ldmatrix_x4_trans(a, at_byte(from.dout, (dout ^ i * 32) + k * 16 * m * 2));
      },
      [&](uint32_t(&b)[4], int k, int j) {
        ldmatrix_x4_trans(b, at_byte(from.inp, (inp ^ j * 16) + k * 16 * n * 2));
      });
}

template <class Sums>
__device__ void store(const Product& p, const Tile& t, const Sums& sums) {
  const Geometry& g = p.geometry;
  const int lane = threadIdx.x % warp_size;
  const int64_t filter = int64_t{g.R} * g.S * p.C;
  float* const out = p.out + int64_t{blockIdx.y} * p.K * filter + (t.r * g.S + t.s) * p.C;
#pragma unroll
  for (int i = 0; i < Sums::ms; ++i)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int k = t.k + Sums::row() + i * 16 + half * 8 + lane / 4;
#pragma unroll
      for (int j = 0; j < Sums::ns; ++j) {
        const int c = t.c + Sums::column() + j * 8 + lane % 4 * 2;
        if (k >= p.K || c >= p.C) continue;
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
  pipeline(
      s.stage, t.first_step, t.last_step,
      [&](int step, Stage<m, n>& to) {
        const int pixel = step * step_pixels;
        load_dout<m>(p, t, pixel, to.dout);
        load_inp<n>(p, t, pixel, to.inp);
      },
      [&](const Stage<m, n>& from) { multiply(sums, from); });
  store(p, t, sums);
}

// out (+)= sum over parts of partial [parts, quads], in order, four elements per thread.
// (finish_column_sums is for many parts of few columns; its order, and so its bits, differ.)
constexpr int add_threads = 256;
__global__ void __launch_bounds__(add_threads)
    conv_add_weight_parts(float4* out, const float4* partial, int parts, int64_t quads,
                          bool accumulate) {
  const int64_t i = int64_t{blockIdx.x} * add_threads + threadIdx.x;
  if (i >= quads) return;
  float4 sum = partial[i];
#pragma unroll 4
  for (int part = 1; part < parts; ++part) {
    const float4 x = partial[part * quads + i];
    sum.x += x.x, sum.y += x.y, sum.z += x.z, sum.w += x.w;
  }
  if (accumulate) {
    const float4 x = out[i];
    sum.x += x.x, sum.y += x.y, sum.z += x.z, sum.w += x.w;
  }
  out[i] = sum;
}

// ---- Launch -------------------------------------------------------------------------------------
struct Plan {
  int m, n;  // of the tile
  int tiles, n_tiles;
  PixelParts parts;
};

Plan plan(const DeviceProps& props, const ConvShape& s) {
  Plan p{};
  p.m = s.K > 64 ? 128 : 64;
  p.n = s.K > 64 && s.C > 64 ? 128 : 64;
  p.n_tiles = ceil_div(s.C, p.n);
  p.tiles = ceil_div(s.K, p.m) * p.n_tiles * s.R * s.S;
  const int steps = ceil_div(s.N * s.P() * s.Q(), step_pixels);
  const int blocks_per_sm = p.n == 128 ? 2 : p.m == 128 ? 3 : 4;
  p.parts = parts_of_pixels(s, steps, p.tiles, props.sms * blocks_per_sm);
  return p;
}

template <class T, int m, int n>
void start(const Plan& plan, const Product& product, cudaStream_t stream) {
  launch<conv_backward_weight<T, m, n>>(dim3(plan.tiles, plan.parts.count), threads,
                                        sizeof(Shared<m, n>), stream, product);
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
  const Product product{.geometry = Geometry::forward(s),
                        .out = direct ? op.dweight : static_cast<float*>(op.workspace),
                        .dout = op.dout,
                        .inp = op.inp,
                        .C = s.C,
                        .K = s.K,
                        .n_tiles = by.n_tiles,
                        .steps_of_part = by.parts.steps,
                        .accumulate = direct && op.accumulate};
  by_16_bits(op.dtype, [&]<class T>() {
    if (by.m == 64)
      start<T, 64, 64>(by, product, stream);
    else if (by.n == 64)
      start<T, 128, 64>(by, product, stream);
    else
      start<T, 128, 128>(by, product, stream);
  });
  if (direct) return;
  const auto quads = static_cast<int64_t>(s.weight_count()) / 4;
  launch<conv_add_weight_parts>(static_cast<unsigned>(ceil_div(quads, add_threads)), add_threads, 0,
                                stream, reinterpret_cast<float4*>(op.dweight),
                                static_cast<const float4*>(op.workspace), by.parts.count, quads,
                                op.accumulate);
}

}  // namespace bv::BAREVISION_GPU

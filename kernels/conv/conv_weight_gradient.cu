// The weight's gradient of a convolution in 16 bits on tensor cores, as an implicit matrix product
// (one group; C and K are multiples of 8):
//   dweight[k, r, s, c] (+)= sum over n, p, q of
//       dout[n, p, q, k] inp[n, p stride - padding + r, q stride - padding + s, c]
// dweight = or += by accumulate.
//
// A block of 4 warps computes a tile of k x c for one tap (r, s), over a part of the pixels
// (n, p, q), 32 at a time: cp.async brings their rows of dout and of inp, as the tap shifts them
// (outside the image: zeros), to one of 4 stages of shared memory, three steps ahead. Both lie with
// the pixels, the depth of the product, in rows: ldmatrix transposes them into mma's fragments.
// fp32 sums stay in registers. Parts write theirs to the workspace, [parts, K, R, S, C], and a
// second kernel adds these up in their order. Blocks of all taps of a tile come one after another:
// they read the same rows, from L2.
//
// The parts are as many as fill the chip, as long as each has 8 steps and their sums stay within
// 64 MB. At 128 x 128 a step is 1.05 Mflop for 16 KB of L2; calculated clocks of an SM:
//   mma        512 (sm_80); on sm_90 410 at the rate of mma.sync
//   ldmatrix   4 warps * 16 * 512 bytes at 128 a clock    256   both of these are shared memory's:
//   cp.async   16 KB written                              128   384
//   L2         16 KB at about 30 bytes a clock            550
// so that L2 is the limit of a 3x3, at some 480 Tflop/s of an H200; nothing of this is measured.
//
// Tile        warp     registers (sm_80, sm_90a)  shared  blocks of an SM (sm_80, sm_90)
// 128 x 128   64 x 64  210, 210                   64 KB   2, 2
// 128 x 64    64 x 32  138, 138                   48 KB   3, 3
//  64 x 64    32 x 32  91, 86                     32 KB   5, 5
#include "kernels/conv/conv.cuh"
#include "kernels/conv/conv_tiles.cuh"
#include "kernels/cuda/ptx.cuh"
#include "kernels/cuda/reduce.cuh"

namespace bv::BAREVISION_GPU {
namespace {

constexpr int threads = 128;  // 2 x 2 warps
constexpr int stages = 4, step_pixels = 32;

// out[part, k, tap, c] (+)= sum over the part's pixels of dout[pixel, k] inp[pixel + tap, c]
struct Product {
  float* out;
  const void* dout;  // [pixels, K]
  const void* inp;   // [N, H, W, C]
  int pixels, P, Q;
  Divisor by_image, by_row;  // P * Q, Q
  int H, W, C, K, R, S, stride, padding;
  int column_tiles, steps_of_part;
  bool accumulate;
};

struct Tile {
  int k, c, r, s;             // the first ones, and the tap
  int first_step, last_step;  // of the part: [first, last)
};

template <int m, int n>
__device__ Tile tile_of_block(const Product& p) {
  const int taps = p.R * p.S, tap = blockIdx.x % taps, tile = blockIdx.x / taps;
  const int steps = ceil_div(p.pixels, step_pixels), first = blockIdx.y * p.steps_of_part;
  return {.k = tile / p.column_tiles * m,
          .c = tile % p.column_tiles * n,
          .r = tap / p.S,
          .s = tap % p.S,
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
// A thread copies the same chunk of every rows_at_once-th row, of both.
template <int m, int n>
struct Loader {
  static constexpr int dout_chunks = m / 8, inp_chunks = n / 8;
  static constexpr int dout_rows_at_once = threads / dout_chunks,
                       inp_rows_at_once = threads / inp_chunks;
  static_assert(dout_rows_at_once % 8 == 0 && inp_rows_at_once % 8 == 0, "swizzles repeat");

  __device__ static void load(const Product& p, const Tile& t, int step, Stage<m, n>& to) {
    const int thread = static_cast<int>(threadIdx.x), first = step * step_pixels;
    const int dout_chunk = thread % dout_chunks, dout_row = thread / dout_chunks;
    const bool k_there = t.k + dout_chunk * 8 < p.K;
    const auto* dout = static_cast<const uint4*>(p.dout) + (t.k / 8 + dout_chunk);
    const int dout_place = swizzled<dout_chunks>(dout_row, dout_chunk);
#pragma unroll
    for (int i = 0; i < step_pixels / dout_rows_at_once; ++i) {
      const int pixel = first + dout_row + i * dout_rows_at_once;
      const bool there = k_there && pixel < p.pixels;
      cp_async_16(at_byte(to.dout, dout_place + i * dout_rows_at_once * dout_chunks * 16),
                  dout + (there ? int64_t{pixel} * (p.K / 8) : 0), there);
    }

    const int inp_chunk = thread % inp_chunks, inp_row = thread / inp_chunks;
    const bool c_there = t.c + inp_chunk * 8 < p.C;
    const auto* inp = static_cast<const uint4*>(p.inp) + (t.c / 8 + inp_chunk);
    const int inp_place = swizzled<inp_chunks>(inp_row, inp_chunk);
#pragma unroll
    for (int i = 0; i < step_pixels / inp_rows_at_once; ++i) {
      const int wanted = first + inp_row + i * inp_rows_at_once;
      const int pixel = wanted < p.pixels ? wanted : 0;
      const int image = p.by_image.divide(pixel), rest = pixel - image * (p.P * p.Q);
      const int y = p.by_row.divide(rest), x = rest - y * p.Q;
      const int h = y * p.stride - p.padding + t.r, w = x * p.stride - p.padding + t.s;
      const bool there = c_there && wanted < p.pixels && static_cast<unsigned>(h) < unsigned(p.H) &&
                         static_cast<unsigned>(w) < unsigned(p.W);
      cp_async_16(at_byte(to.inp, inp_place + i * inp_rows_at_once * inp_chunks * 16),
                  inp + (there ? (int64_t{image * p.H + h} * p.W + w) * (p.C / 8) : 0), there);
    }
  }
};

// ---- Multiply -----------------------------------------------------------------------------------
// A warp's part of the tile, as mma's fragments: a lane holds of the 16x8 sums [i][j] the rows
// i * 16 + lane/4 and the eighth below, columns j * 8 + lane%4*2 and the next.
template <class T, int m, int n>
struct WarpTile {
  static constexpr int rows = m / 2, columns = n / 2;  // 2 x 2 warps
  static constexpr int ms = rows / 16, ns = columns / 8;

  float sum[ms][ns][4] = {};

  __device__ static int row() { return threadIdx.x / warp_size % 2 * rows; }
  __device__ static int column() { return threadIdx.x / warp_size / 2 * columns; }

  __device__ void add(const Stage<m, n>& from) {
    constexpr int dout_chunks = m / 8, inp_chunks = n / 8;
    const int lane = threadIdx.x % warp_size;
    const int dout = swizzled<dout_chunks>(lane / 16 * 8 + lane % 8, row() / 8 + lane / 8 % 2);
    const int inp = swizzled<inp_chunks>(lane % 16, column() / 8 + lane / 16);
#pragma unroll
    for (int k = 0; k < step_pixels / 16; ++k) {
      uint32_t a[ms][4];
#pragma unroll
      for (int i = 0; i < ms; ++i)
        ldmatrix_x4_trans(a[i], at_byte(from.dout, (dout ^ i * 32) + k * 16 * dout_chunks * 16));
#pragma unroll
      for (int j = 0; j < ns; j += 2) {
        uint32_t b[4];
        ldmatrix_x4_trans(b, at_byte(from.inp, (inp ^ j * 16) + k * 16 * inp_chunks * 16));
#pragma unroll
        for (int i = 0; i < ms; ++i) {
          mma_m16n8k16<T>(sum[i][j], a[i], b[0], b[1]);
          mma_m16n8k16<T>(sum[i][j + 1], a[i], b[2], b[3]);
        }
      }
    }
  }

  __device__ void store(const Product& p, const Tile& t) const {
    const int lane = threadIdx.x % warp_size;
    const int64_t filter = int64_t{p.R} * p.S * p.C;
    float* const out = p.out + int64_t{blockIdx.y} * p.K * filter + (t.r * p.S + t.s) * p.C;
#pragma unroll
    for (int i = 0; i < ms; ++i)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int k = t.k + row() + i * 16 + half * 8 + lane / 4;
#pragma unroll
        for (int j = 0; j < ns; ++j) {
          const int c = t.c + column() + j * 8 + lane % 4 * 2;
          if (k >= p.K || c >= p.C) continue;
          float* to = out + k * filter + c;
          float x = sum[i][j][2 * half], y = sum[i][j][2 * half + 1];
          if (p.accumulate) {
            const auto before = load<2>(to);
            x += before.at[0], y += before.at[1];
          }
          bv::BAREVISION_GPU::store(to, Elements<float, 2>{x, y});
        }
      }
  }
};

template <class T, int m, int n>
__global__ void __launch_bounds__(threads, m + n > 128 ? 2 : 4) conv_backward_weight(Product p) {
  auto& s = shared<Shared<m, n>>();
  const Tile t = tile_of_block<m, n>(p);
  WarpTile<T, m, n> tile;
  const auto load = [&](int step) {
    if (step < t.last_step) Loader<m, n>::load(p, t, step, s.stage[(step - t.first_step) % stages]);
    cp_async_commit();
  };
#pragma unroll
  for (int i = 0; i < stages - 1; ++i) load(t.first_step + i);
  for (int step = t.first_step; step < t.last_step; ++step) {
    cp_async_wait<stages - 2>();
    __syncthreads();  // all have this stage, and none reads the one that comes next any more
    load(step + stages - 1);
    tile.add(s.stage[(step - t.first_step) % stages]);
  }
  cp_async_wait<0>();
  tile.store(p, t);
}

// out (+)= sum over parts of partial [parts, quads], four elements a thread.
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
  int tiles, column_tiles;
  PixelParts parts;
};

Plan plan(const DeviceProps& props, const ConvShape& s) {
  Plan p{};
  p.m = s.K > 64 ? 128 : 64;
  p.n = s.K > 64 && s.C > 64 ? 128 : 64;
  p.column_tiles = ceil_div(s.C, p.n);
  p.tiles = ceil_div(s.K, p.m) * p.column_tiles * s.R * s.S;
  const int steps = ceil_div(s.N * s.P() * s.Q(), step_pixels);
  const int blocks_of_multiprocessor = p.n == 128 ? 2 : p.m == 128 ? 3 : 4;
  p.parts = parts_of_pixels(s, steps, p.tiles, props.sms * blocks_of_multiprocessor);
  return p;
}

template <class T, int m, int n>
void start(const Plan& plan, const Product& product, cudaStream_t stream) {
  launch<conv_backward_weight<T, m, n>>(dim3(plan.tiles, plan.parts.count), threads,
                                        sizeof(Shared<m, n>), stream, product);
}

}  // namespace

size_t conv_backward_weight_bytes(const DeviceProps& props, const ConvBackwardWeight& op) {
  const int parts = plan(props, op.shape).parts.count;
  return parts == 1 ? 0 : sizeof(float) * parts * static_cast<size_t>(op.shape.weight_count());
}

void conv_backward_weight(const DeviceProps& props, const ConvBackwardWeight& op,
                          cudaStream_t stream) {
  const ConvShape& s = op.shape;
  const Plan way = plan(props, s);
  const bool direct = way.parts.count == 1;
  const Product product{.out = direct ? op.dweight : static_cast<float*>(op.workspace),
                        .dout = op.dout,
                        .inp = op.inp,
                        .pixels = s.N * s.P() * s.Q(),
                        .P = s.P(),
                        .Q = s.Q(),
                        .by_image = Divisor(s.P() * s.Q()),
                        .by_row = Divisor(s.Q()),
                        .H = s.H,
                        .W = s.W,
                        .C = s.C,
                        .K = s.K,
                        .R = s.R,
                        .S = s.S,
                        .stride = s.stride,
                        .padding = s.padding,
                        .column_tiles = way.column_tiles,
                        .steps_of_part = way.parts.steps,
                        .accumulate = direct && op.accumulate};
  by_dtype(op.dtype, [&]<class T>() {
    if constexpr (!std::is_same_v<T, float>) {
      if (way.m == 64)
        start<T, 64, 64>(way, product, stream);
      else if (way.n == 64)
        start<T, 128, 64>(way, product, stream);
      else
        start<T, 128, 128>(way, product, stream);
    }
  });
  if (direct) return;
  const auto quads = static_cast<int64_t>(s.weight_count()) / 4;
  launch<conv_add_weight_parts>(static_cast<unsigned>(ceil_div(quads, int64_t{add_threads})),
                                add_threads, 0, stream, reinterpret_cast<float4*>(op.dweight),
                                static_cast<const float4*>(op.workspace), way.parts.count, quads,
                                op.accumulate);
}

}  // namespace bv::BAREVISION_GPU

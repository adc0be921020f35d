// Convolution in 16 bits on tensor cores, as an implicit matrix product (one group; C and K are
// multiples of 8):
//   forward          out[n, p, q, k] = sum over r, s, c of
//                        inp[n, p stride - padding + r, q stride - padding + s, c] weight[k, r, s, c]
//                    moments: of out as it is rounded                                     both =
//   input gradient   dinp[n, h, w, c] = add + sum over k and all r, s with
//                        p stride - padding + r = h,  q stride - padding + s = w  of
//                        dout[n, p, q, k] weight[k, r, s, c]                                   =
// Both are matrix products as conv_geometry.cuh has them; the image's matrix is never written out.
// add is added in fp32 before rounding, and may be dinp.
//
// A block of 4 warps computes a tile of pixels x columns in steps of 32 of the depth: cp.async
// brings the image's rows and the weight's to one of 4 stages of shared memory, three steps ahead
// (outside the image: zeros), ldmatrix and mma m16n8k16 multiply a stage; fp32 sums stay in
// registers. Sums pass through shared memory as they leave, so that a row's stores are 16 bytes
// wide and side by side. There the block takes its tile's moments, each column's mean and squared
// differences from that, which merge_moments merges: nobody reads out again. A tile computes with
// all taps of 32 of the depth before the next 32: they read nearly the same rows, from L1. Small
// maps have too few tiles for the chip; then blocks share a tile's depth, and a second kernel adds
// their sums up in a fixed order.
//
// At 128 x 128 a step is 1.05 Mflop. Calculated clocks of an SM for it:
//   mma        512 (sm_80); on sm_90 256 at the rate of wgmma, 410 at that of mma.sync
//   ldmatrix   4 warps * 16 * 512 bytes at 128 a clock    256   both of these are shared memory's:
//   cp.async   16 KB written                              128   384
//   issue      4 warps * 160 instructions / 4 schedulers  160   (SASS for sm_90a, counted)
//   L2         8 KB of weight, 1 to 8 KB of image (3x3: taps share it; 1x1) at about 30 bytes a
//              clock: 300 to 550
// so a 3x3 is limited by mma; an H200 (132 SMs, 1.755 GHz) at 410 clocks a step would
// make 590 Tflop/s less what prologue, epilogue and last wave take. A 1x1 with C or K of 64 to 128
// is limited by memory: 64 -> 256 at 56 x 56 moves 40 KB a tile, 2200 clocks at 4.3 TB/s / 132, in
// which its 2100 instructions a warp issue. None of this is measured.
//
// Tile        warp     registers (sm_80, sm_90a)  shared  blocks of an SM (sm_80, sm_90)
// 128 x 128   64 x 64  210 - 224, 220 - 230       64 KB   2, 2
// 256 x 64    64 x 64  223 - 240, 232 - 238       80 KB   2, 2
// 128 x 64    64 x 32  140 - 154, 148 - 156       48 KB   3, 3
//  64 x 64    32 x 32  89 - 92, 89 - 94            32 KB   4, 5
#include "kernels/conv/conv.cuh"
#include "kernels/conv/conv_tiles.cuh"
#include "kernels/cuda/column_sums.cuh"
#include "kernels/cuda/ptx.cuh"

namespace bv::BAREVISION_GPU {
namespace {

constexpr int threads = 128, warps = threads / warp_size;
constexpr int stages = 4;       // of copies under way, one of them being multiplied
constexpr int step_depth = 32;  // elements of the depth in a stage
constexpr int max_taps = 16;    // along an axis: bits of a mask

// ---- The convolution as a matrix product --------------------------------------------------------
struct Product : Geometry {
  void* out;
  const void* add;    // as out, or null
  float* partial;     // [tiles along the pixels, 2, columns]: mean and M2 of each tile; or null
  float4* sums;       // of each part of the depth and each tile, as WarpTile::save lays them; null:
                      // one part
  const void* image;  // [N, H, W, depth]
  const void* weight;  // [K, R, S, C]
  int depth, columns;
  int column_tiles;
  Divisor by_column_tiles;
};

struct Tile : Phase {
  int pixel, column;  // the first ones
};

template <int m, int n, bool input_gradient>
__device__ Tile tile_of_block(const Product& p) {
  Tile t{Phase::of_block<input_gradient>(p, static_cast<int>(blockIdx.y),
                                         static_cast<int>(gridDim.y))};
  const int block = static_cast<int>(blockIdx.x), pixel_tile = p.by_column_tiles.divide(block);
  t.pixel = pixel_tile * m;
  t.column = (block - pixel_tile * p.column_tiles) * n;
  return t;
}

// ---- Shared memory ------------------------------------------------------------------------------
template <int m, int n>
struct Stage {
  alignas(128) uint4 image[m * step_depth / 8];  // [m, step_depth]
  uint4 weight[n * step_depth / 8];              // [n, step_depth]; input gradient: [step_depth, n]
};

template <int m, int n>
struct Results {
  alignas(128) uint4 tile[m * n / 8];  // [m, n]
  alignas(16) float mean[n];
  float squares[warps][n];
};

template <int m, int n>
struct Shared {
  union {
    Stage<m, n> stage[stages];
    Results<m, n> results;  // once the last stage has been multiplied
  };
};

// ---- Load ---------------------------------------------------------------------------------------
// Copies one stage after another: the depth in steps of 32, for each of them all taps, so that the
// image's rows, which neighbouring taps share, are still in the L1 cache. Offsets are in chunks of
// 16 bytes. A thread copies the same chunk of every 32nd row.
template <int m, int n, bool input_gradient>
struct Loader {
  static constexpr int chunks = step_depth / 8, rows_at_once = threads / chunks;
  static constexpr int image_rows = m / rows_at_once;
  static constexpr int weight_chunks = input_gradient ? n / 8 : chunks;  // of a row
  static constexpr int weight_rows_at_once = threads / weight_chunks;
  static constexpr int weight_rows = (input_gradient ? step_depth : n) / weight_rows_at_once;
  static_assert(rows_at_once % 8 == 0 && weight_rows_at_once % 8 == 0, "swizzles repeat");

  const uint4* image;
  const uint4* weight;
  int offset[image_rows];  // of this thread's rows at tap 0, 0
  // Bits 0 ...: taps of y that lie inside the image; 16 ...: those of x.
  uint32_t inside[image_rows];
  int weight_offset, weight_step;  // the first row's; from there to the next
  int weight_left;  // rows of the weight from the first one on; forward: in `columns`, else in depth
  bool column_there;
  int c = 0, i = 0, j = 0;  // the next step: chunk of the depth, tap of y, of x

  __device__ static uint32_t taps_inside(int first, int image) {
    const int begin = min(max(-first, 0), max_taps), end = min(max(image - first, 0), max_taps);
    return ((1u << end) - 1) & ~((1u << begin) - 1);
  }

  __device__ Loader(const Product& p, const Tile& t, int first_step)
      : image(static_cast<const uint4*>(p.image)), weight(static_cast<const uint4*>(p.weight)) {
    const int thread = static_cast<int>(threadIdx.x), chunk = thread % chunks;
#pragma unroll
    for (int k = 0; k < image_rows; ++k) {
      const int pixel = t.pixel + thread / chunks + k * rows_at_once;
      const Pixel at(p, pixel < p.pixels ? pixel : 0);
      const int h = at.y * t.y.step + t.y.first, w = at.x * t.x.step + t.x.first;
      offset[k] = ((at.image * p.H + h) * p.W + w) * (p.depth / 8) + chunk;
      inside[k] = pixel < p.pixels ? taps_inside(h, p.H) | taps_inside(w, p.W) << max_taps : 0;
    }
    const int row = thread / weight_chunks, weight_chunk = thread % weight_chunks;
    if (input_gradient) {
      const int filter = p.R * p.S * (p.columns / 8);
      weight_offset = row * filter + t.column / 8 + weight_chunk;
      weight_step = weight_rows_at_once * filter;
      weight_left = p.depth - row;
      column_there = t.column + weight_chunk * 8 < p.columns;
    } else {
      const int filter = p.R * p.S * (p.depth / 8);
      weight_offset = (t.column + row) * filter + weight_chunk;
      weight_step = weight_rows_at_once * filter;
      weight_left = p.columns - t.column - row;
    }
    if (first_step > 0) {
      const int taps = t.y.taps * t.x.taps, tap = first_step % taps;
      c = first_step / taps * chunks, i = tap / t.x.taps, j = tap % t.x.taps;
    }
  }

  __device__ void load(const Product& p, const Tile& t, Stage<m, n>& to) {
    const int thread = static_cast<int>(threadIdx.x), chunk = thread % chunks;
    const bool in_depth = c + chunk < p.depth / 8;
    const uint4* from = image + (int64_t{i * p.W + j} * (p.depth / 8) + c);
    const int place = swizzled<chunks>(thread / chunks, chunk);
    const uint32_t tap_bits = 1u << i | 1u << (max_taps + j);
#pragma unroll
    for (int k = 0; k < image_rows; ++k)
      cp_async_ca_16(at_byte(to.image, place + k * rows_at_once * chunks * 16), from + offset[k],
                     in_depth && (inside[k] & tap_bits) == tap_bits);

    const int weight_place =
        swizzled<weight_chunks>(thread / weight_chunks, thread % weight_chunks);
    const int tap = (t.y.filter + i * t.y.filter_step) * p.S + t.x.filter + j * t.x.filter_step;
    if (input_gradient)
      from = weight + (tap + int64_t{c * 8} * (p.R * p.S)) * (p.columns / 8);
    else
      from = weight + (int64_t{tap} * (p.depth / 8) + c);
    from += weight_offset;
#pragma unroll
    for (int k = 0; k < weight_rows; ++k)
      cp_async_16(at_byte(to.weight, weight_place + k * weight_rows_at_once * weight_chunks * 16),
                  from + k * weight_step,
                  input_gradient ? column_there && c * 8 + k * weight_rows_at_once < weight_left
                                 : in_depth && k * weight_rows_at_once < weight_left);

    if (++j == t.x.taps) {
      j = 0;
      if (++i == t.y.taps) i = 0, c += chunks;
    }
  }
};

// ---- Multiply -----------------------------------------------------------------------------------
// A warp's part of the tile, as mma's fragments: a lane holds of the 16x8 sums [i][j] the rows
// i * 16 + lane/4 and the eighth below, columns j * 8 + lane%4*2 and the next.
template <class T, int m, int n, bool input_gradient>
struct WarpTile {
  static constexpr int warps_m = m == 256 ? 4 : 2, warps_n = warps / warps_m;
  static constexpr int rows = m / warps_m, columns = n / warps_n;
  static constexpr int ms = rows / 16, ns = columns / 8;

  float sum[ms][ns][4] = {};

  __device__ static int row() { return threadIdx.x / warp_size % warps_m * rows; }
  __device__ static int column() { return threadIdx.x / warp_size / warps_m * columns; }

  __device__ void add(const Stage<m, n>& from) {
    constexpr int chunks = step_depth / 8, weight_chunks = input_gradient ? n / 8 : chunks;
    const int lane = threadIdx.x % warp_size;
    // This lane's rows of the first 8x8 matrices; those of the weight lie so that the two that one
    // mma takes come in neighbouring registers.
    const int image = swizzled<chunks>(row() + lane % 16, lane / 16);
    const int weight = input_gradient
                           ? swizzled<weight_chunks>(lane % 16, column() / 8 + lane / 16)
                           : swizzled<chunks>(column() + lane / 16 * 8 + lane % 8, lane / 8 % 2);
#pragma unroll
    for (int k = 0; k < step_depth / 16; ++k) {
      uint32_t a[ms][4];
#pragma unroll
      for (int i = 0; i < ms; ++i)
        ldmatrix_x4(a[i], at_byte(from.image, (image ^ k * 32) + i * 16 * chunks * 16));
#pragma unroll
      for (int j = 0; j < ns; j += 2) {
        uint32_t b[4];
        if constexpr (input_gradient)
          ldmatrix_x4_trans(b,
                            at_byte(from.weight, (weight ^ j * 16) + k * 16 * weight_chunks * 16));
        else
          ldmatrix_x4(b, at_byte(from.weight, (weight ^ k * 32) + j * 8 * chunks * 16));
#pragma unroll
        for (int i = 0; i < ms; ++i) {
          mma_m16n8k16<T>(sum[i][j], a[i], b[0], b[1]);
          mma_m16n8k16<T>(sum[i][j + 1], a[i], b[2], b[3]);
        }
      }
    }
  }

  // The sums of a part of the depth, for another kernel to add up: [fragment][thread].
  __device__ void save(float4* to) const {
#pragma unroll
    for (int i = 0; i < ms; ++i)
#pragma unroll
      for (int j = 0; j < ns; ++j)
        to[(i * ns + j) * threads + threadIdx.x] = {sum[i][j][0], sum[i][j][1], sum[i][j][2],
                                                    sum[i][j][3]};
  }
  __device__ void add(const float4* from) {
#pragma unroll
    for (int i = 0; i < ms; ++i)
#pragma unroll
      for (int j = 0; j < ns; ++j) {
        const float4 x = from[(i * ns + j) * threads + threadIdx.x];
        sum[i][j][0] += x.x, sum[i][j][1] += x.y, sum[i][j][2] += x.z, sum[i][j][3] += x.w;
      }
  }

  // The sums as Ts; with `plus`, added to what the tile holds.
  __device__ void store(uint4* tile, bool plus) const {
    const int lane = threadIdx.x % warp_size;
#pragma unroll
    for (int i = 0; i < ms; ++i)
#pragma unroll
      for (int half = 0; half < 2; ++half)
#pragma unroll
        for (int j = 0; j < ns; ++j) {
          const int place =
              swizzled<n / 8>(row() + i * 16 + half * 8 + lane / 4, column() / 8 + j) +
              lane % 4 * 4;
          auto* to = static_cast<Elements<T, 2>*>(at_byte(tile, place));
          float x = sum[i][j][2 * half], y = sum[i][j][2 * half + 1];
          if (plus) x += to_float(to->at[0]), y += to_float(to->at[1]);
          *to = {from_float<T>(x), from_float<T>(y)};
        }
  }
};

// ---- Store --------------------------------------------------------------------------------------
// A thread has one chunk of columns and every rows_at_once-th row of the tile.
template <class T, int m, int n, bool input_gradient>
struct Epilogue {
  static constexpr int chunks = n / 8, rows_at_once = threads / chunks;
  static constexpr int rows = m / rows_at_once;
  static_assert(rows_at_once % 8 == 0, "swizzles repeat");

  __device__ static int row() { return threadIdx.x / chunks; }
  __device__ static int chunk() { return threadIdx.x % chunks; }
  __device__ static int place(int k) {
    return swizzled<chunks>(row(), chunk()) + k * rows_at_once * chunks * 16;
  }

  // tile = add
  __device__ static void load(const Product& p, const Tile& t, Results<m, n>& s) {
    const int column = t.column + chunk() * 8;
#pragma unroll 4
    for (int k = 0; k < rows; ++k) {
      const int to = out_row<input_gradient>(p, t, t.pixel + row() + k * rows_at_once);
      const bool there = to >= 0 && column < p.columns;
      cp_async_16(at_byte(s.tile, place(k)),
                  static_cast<const T*>(p.add) + (there ? int64_t{to} * p.columns + column : 0),
                  there);
    }
    cp_async_commit();
    cp_async_wait<0>();
  }

  // out = tile
  __device__ static void store(const Product& p, const Tile& t, const Results<m, n>& s) {
    const int column = t.column + chunk() * 8, pixel = t.pixel + row();
    const bool column_there = column < p.columns;
    const auto copy = [&](T* to, int k) {
      st_global(reinterpret_cast<uint4*>(to),
                *static_cast<const uint4*>(at_byte(s.tile, place(k))));
    };
    T* const out = static_cast<T*>(p.out) + column;
    if (!input_gradient || p.stride == 1) {
      T* to = out + int64_t{pixel} * p.columns;
#pragma unroll
      for (int k = 0; k < rows; ++k, to += rows_at_once * p.columns)
        if (column_there && k * rows_at_once < p.pixels - pixel) copy(to, k);
    } else {
#pragma unroll 4
      for (int k = 0; k < rows; ++k) {
        const int to = out_row<input_gradient>(p, t, pixel + k * rows_at_once);
        if (to >= 0 && column_there) copy(out + int64_t{to} * p.columns, k);
      }
    }
  }

  // partial = each column's mean over the tile, and its sum of squared differences from that, of
  // the values as they are rounded. The sums are mma's, of ones and the tile, whose rows beyond the
  // last pixel are zeros.
  __device__ static void moments(const Product& p, const Tile& t, Results<m, n>& s) {
    const int warp = threadIdx.x / warp_size, lane = threadIdx.x % warp_size;
    const int left = p.pixels - t.pixel;
    constexpr int warp_columns = n / warps;
    const uint32_t one = cvt_rn_x2<T>(1, 1), ones[4] = {one, one, one, one};
    float sum[warp_columns / 8][4] = {};
#pragma unroll
    for (int i = 0; i < m; i += 16)
#pragma unroll
      for (int j = 0; j < warp_columns / 8; j += 2) {
        uint32_t b[4];
        ldmatrix_x4_trans(
            b, at_byte(s.tile,
                       swizzled<chunks>(i + lane % 16, warp * warp_columns / 8 + j + lane / 16)));
        mma_m16n8k16<T>(sum[j], ones, b[0], b[1]);
        mma_m16n8k16<T>(sum[j + 1], ones, b[2], b[3]);
      }
    const float count_inverse = 1.f / static_cast<float>(min(m, left));
#pragma unroll
    for (int j = 0; j < warp_columns / 8; ++j)
      if (lane < 4)
        bv::BAREVISION_GPU::store(
            &s.mean[warp * warp_columns + j * 8 + lane * 2],
            Elements<float, 2>{sum[j][0] * count_inverse, sum[j][1] * count_inverse});
    __syncthreads();

    const auto mean = bv::BAREVISION_GPU::load<8>(&s.mean[chunk() * 8]);
    float squares[8] = {};
#pragma unroll 4
    for (int k = 0; k < rows; ++k)
      if (k * rows_at_once < left - row()) {
        const auto pack = load_pack(static_cast<const T*>(at_byte(s.tile, place(k))));
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          const float x = to_float(pack.at[i]) - mean.at[i];
          squares[i] += x * x;
        }
      }
    using Rows = RowSums<chunks, 8>;
    const int first = chunk() * 8 + Rows::add(squares);
#pragma unroll
    for (int i = 0; i < Rows::count; ++i) s.squares[warp][first + i] = squares[i];
    __syncthreads();

    const int column = t.column + static_cast<int>(threadIdx.x);
    if (threadIdx.x < n && column < p.columns) {
      float total = 0;
#pragma unroll
      for (int w = 0; w < warps; ++w) total += s.squares[w][threadIdx.x];
      float* to = p.partial + int64_t{t.pixel / m} * 2 * p.columns + column;
      to[0] = s.mean[threadIdx.x];
      to[p.columns] = total;
    }
  }
};

// ---- The kernels --------------------------------------------------------------------------------
// Blocks of an SM, as registers allow.
template <int m, int n>
constexpr int blocks_per_sm = m* n >= 128 * 128  ? 2
                              : m* n >= 128 * 64 ? 3
                                                 : 5;

// Of a tile without a step, which is to be added to what is there already, nothing is to be done.
__device__ inline bool has_work(const Product& p, int steps) { return steps > 0 || p.add != p.out; }

template <class T, int m, int n, bool input_gradient>
__device__ void finish(const Product& p, const Tile& t,
                       const WarpTile<T, m, n, input_gradient>& tile, Results<m, n>& s) {
  using Out = Epilogue<T, m, n, input_gradient>;
  const bool plus = input_gradient && p.add;
  if (plus) {
    Out::load(p, t, s);
    __syncthreads();
  }
  tile.store(s.tile, plus);
  __syncthreads();
  Out::store(p, t, s);
  if (!input_gradient && p.partial) Out::moments(p, t, s);
}

// Block (tile, phase, part of the depth). Only small tiles are worth splitting their depth.
constexpr int split_m = 64, split_n = 64;
__device__ inline float4* sums_of_tile(const Product& p, int part) {
  const auto tile = (int64_t{part} * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  return p.sums + tile * (split_m * split_n / 4);
}

template <class T, int m, int n, bool input_gradient>
__global__ void __launch_bounds__(threads, (blocks_per_sm<m, n>)) conv_tile(Product p) {
  constexpr bool splits = m == split_m && n == split_n;
  auto& s = shared<Shared<m, n>>();
  const Tile t = tile_of_block<m, n, input_gradient>(p);
  int steps = t.y.taps * t.x.taps * ceil_div(p.depth, step_depth);
  if (has_work(p, steps)) {
    int first = 0;
    if (splits && p.sums) {
      const int part = static_cast<int>(blockIdx.z), parts = static_cast<int>(gridDim.z);
      first = steps * part / parts;
      steps = steps * (part + 1) / parts - first;
    }
    WarpTile<T, m, n, input_gradient> tile;
    if (steps > 0) {
      Loader<m, n, input_gradient> loader(p, t, first);
#pragma unroll
      for (int k = 0; k < stages - 1; ++k) {
        if (k < steps) loader.load(p, t, s.stage[k]);
        cp_async_commit();
      }
      for (int step = 0; step < steps; ++step) {
        cp_async_wait<stages - 2>();
        __syncthreads();  // all have copied this stage, and multiplied the one before
        if (step + stages - 1 < steps) loader.load(p, t, s.stage[(step + stages - 1) % stages]);
        cp_async_commit();
        tile.add(s.stage[step % stages]);
      }
      __syncthreads();
    }
    if (splits && p.sums)
      tile.save(sums_of_tile(p, blockIdx.z));
    else
      finish(p, t, tile, s.results);
  }
}

// Adds up the parts of the depth, in their order.
template <class T, bool input_gradient>
__global__ void __launch_bounds__(threads, (blocks_per_sm<split_m, split_n>))
    conv_add_parts(Product p, int parts) {
  auto& s = shared<Results<split_m, split_n>>();
  const Tile t = tile_of_block<split_m, split_n, input_gradient>(p);
  const int steps = t.y.taps * t.x.taps;
  if (has_work(p, steps)) {
    WarpTile<T, split_m, split_n, input_gradient> tile;
    if (steps > 0)
      for (int part = 0; part < parts; ++part) tile.add(sums_of_tile(p, part));
    finish(p, t, tile, s);
  }
}

// ---- Tile choice --------------------------------------------------------------------------------
struct TileSize {
  int m, n;
  double clocks;  // for an element of the tile, relative to the best one's: smaller tiles read
                  // more of shared memory for a product
};
constexpr TileSize tile_sizes[] = {
    {128, 128, 1}, {256, 64, 1.1}, {128, 64, 1.35}, {split_m, split_n, 1.8}};

struct Choice {
  TileSize size;
  int parts;     // of the depth
  size_t tiles;  // of all phases
};

template <int m, int n>
constexpr size_t shared_bytes = sizeof(Shared<m, n>);

// Calls f.template operator()<m, n>() with the size as constants.
template <class F>
void by_size(const TileSize& size, F f) {
  if (size.m == 256) return f.template operator()<256, 64>();
  if (size.n == 128) return f.template operator()<128, 128>();
  if (size.m == 128) return f.template operator()<128, 64>();
  f.template operator()<split_m, split_n>();
}

// steps: of a tile, in the phase that has most.
Choice choose(const DeviceProps& props, int pixels, int columns, int phases, int steps) {
  Choice best{};
  double least = 0;
  for (const TileSize& size : tile_sizes) {
    bool fits = false;
    by_size(size, [&]<int m, int n> { fits = shared_bytes<m, n> <= size_t(props.shared_bytes); });
    if (!fits) continue;
    const size_t tiles =
        size_t(ceil_div(pixels, size.m)) * size_t(ceil_div(columns, size.n)) * size_t(phases);
    // The SM that has most to do decides.
    const double clocks =
        double(ceil_div(tiles, size_t(props.sms))) * size.m * size.n * size.clocks;
    if (!best.tiles || clocks < least) best = {size, 1, tiles}, least = clocks;
  }
  // Where more than half of the chip would be idle, parts of the depth give each SM two
  // tiles, if they are long enough to be worth the second kernel.
  const size_t sms = size_t(props.sms);
  if (best.size.m * best.size.n == split_m * split_n && 2 * best.tiles <= sms && steps >= 32)
    best.parts = int(std::min(2 * sms / best.tiles, size_t(steps / 8)));
  return best;
}

template <bool input_gradient>
int max_steps(const ConvShape& s) {
  int most = 0;
  const auto taps = [&](int a, int filter, int image, int out) {
    return input_gradient
               ? axis<true>(a, filter, out, ceil_div(image, s.stride), s.stride, s.padding).taps
               : axis<false>(0, filter, image, out, s.stride, s.padding).taps;
  };
  for (int a = 0; a < (input_gradient ? s.stride : 1); ++a)
    for (int b = 0; b < (input_gradient ? s.stride : 1); ++b)
      most = std::max(most, taps(a, s.R, s.H, s.P()) * taps(b, s.S, s.W, s.Q()));
  return most * ceil_div(input_gradient ? s.K : s.C, step_depth);
}

int out_pixels(const ConvShape& s) { return s.N * s.P() * s.Q(); }
int phase_pixels(const ConvShape& s) {
  return s.N * ceil_div(s.H, s.stride) * ceil_div(s.W, s.stride);
}
Choice choose_forward(const DeviceProps& props, const ConvShape& s) {
  return choose(props, out_pixels(s), s.K, 1, max_steps<false>(s));
}
Choice choose_backward_input(const DeviceProps& props, const ConvShape& s) {
  return choose(props, phase_pixels(s), s.C, s.stride * s.stride, max_steps<true>(s));
}

// The workspace: the tiles' moments, or the sums of the depth's parts; both in this order.
size_t moments_bytes(const Choice& choice, int pixels, int columns) {
  const size_t bytes =
      sizeof(float) * 2 * size_t(ceil_div(pixels, choice.size.m)) * size_t(columns);
  return ceil_div(bytes, size_t{256}) * 256;
}
size_t sums_bytes(const Choice& choice) {
  return choice.parts == 1
             ? 0
             : choice.tiles * size_t(choice.parts) * split_m * split_n * sizeof(float);
}

// ---- The operations -----------------------------------------------------------------------------
Product product(const ConvForward& op) {
  return {Geometry::forward(op.shape),
          op.out,
          nullptr,
          nullptr,
          nullptr,
          op.inp,
          op.weight,
          op.shape.C,
          op.shape.K,
          1,
          Divisor(1)};
}

Product product(const ConvBackwardInput& op) {
  return {Geometry::backward_input(op.shape),
          op.dinp,
          op.add,
          nullptr,
          nullptr,
          op.dout,
          op.weight,
          op.shape.K,
          op.shape.C,
          1,
          Divisor(1)};
}

template <bool input_gradient>
void launch_product(Product p, const Choice& choice, void* sums, DType dtype, cudaStream_t stream) {
  const auto& [size, parts, tiles] = choice;
  p.column_tiles = ceil_div(p.columns, size.n);
  p.by_column_tiles = Divisor(p.column_tiles);
  if (parts > 1) p.sums = static_cast<float4*>(sums);
  const unsigned phases = input_gradient ? unsigned(p.stride * p.stride) : 1;
  const dim3 grid(unsigned(tiles / phases), phases, unsigned(parts));
  by_dtype(dtype, [&]<class T> {
    if constexpr (!std::is_same_v<T, float>) {
      by_size(size, [&]<int m, int n> {
        launch<conv_tile<T, m, n, input_gradient>>(grid, threads, shared_bytes<m, n>, stream, p);
      });
      if (parts > 1)
        launch<conv_add_parts<T, input_gradient>>(
            dim3(grid.x, grid.y), threads, sizeof(Results<split_m, split_n>), stream, p, parts);
    }
  });
}

}  // namespace

// What 32-bit indices of pixels and of 16-byte chunks hold, with room for what lies around an image.
bool conv_forward_takes(const ConvShape& s, DType dtype) {
  const auto below = [](double x, int bits) { return x < double(int64_t{1} << bits); };
  const auto chunks = [&](double rows, int columns, int channels) {
    const double around = 2 * max_taps + s.stride + s.padding;
    return ((rows + around) * columns + around) * channels / 8;
  };
  return dtype != DType::fp32 && s.groups == 1 && s.C % 8 == 0 && s.K % 8 == 0 && s.R <= max_taps &&
         s.S <= max_taps && s.stride < 256 && below(double(s.N) * s.H * s.W, 30) &&
         below(double(s.N) * s.P() * s.Q(), 30) && below(chunks(double(s.N) * s.H, s.W, s.C), 31) &&
         below(chunks(double(s.N) * s.P(), s.Q(), s.K), 31) && below(s.weight_count() / 8, 28);
}

size_t conv_forward_bytes(const DeviceProps& props, const ConvForward& op) {
  const Choice choice = choose_forward(props, op.shape);
  return moments_bytes(choice, out_pixels(op.shape), op.shape.K) + sums_bytes(choice);
}

void conv_forward(const DeviceProps& props, const ConvForward& op, cudaStream_t stream) {
  const Choice choice = choose_forward(props, op.shape);
  const int pixels = out_pixels(op.shape), K = op.shape.K;
  Product p = product(op);
  if (op.moments) p.partial = static_cast<float*>(op.workspace);
  launch_product<false>(p, choice,
                        static_cast<char*>(op.workspace) + moments_bytes(choice, pixels, K),
                        op.dtype, stream);
  if (op.moments)
    merge_moments({.moments = op.moments,
                   .partial = p.partial,
                   .parts = ceil_div(pixels, choice.size.m),
                   .rows_of_part = choice.size.m,
                   .rows = pixels,
                   .C = K},
                  stream);
}

size_t conv_backward_input_bytes(const DeviceProps& props, const ConvBackwardInput& op) {
  return sums_bytes(choose_backward_input(props, op.shape));
}

void conv_backward_input(const DeviceProps& props, const ConvBackwardInput& op,
                         cudaStream_t stream) {
  const Choice choice = choose_backward_input(props, op.shape);
  launch_product<true>(product(op), choice, op.workspace, op.dtype, stream);
}

}  // namespace bv::BAREVISION_GPU

// Convolution by plain FMA, for every dtype and shape; used where there is no tensor-core kernel:
// for fp32, unusual groups and channels, and the input gradient of a first layer. Each direction is
// a matrix product per group,
//   c[m, n] = sum over k of a[k, m] b[k, n]
//   direction        gemm_m           gemm_n         gemm_k                  a      b
//   forward          pixels           K of a group   taps x C of the group   inp    weight
//   input gradient   pixels, phases   C of a group   taps x K of the group   dout   weight
//   weight gradient  taps x C         K of a group   pixels                  inp    dout
// (conv_geometry.cuh: pixels, phases, taps). `a` is gathered from the image and never written out.
// Moments are computed from a tile's sums in registers; `add` is added in fp32 before rounding. If
// the weight gradient's tiles do not fill the GPU, blocks split gemm_k, and finish_column_sums adds
// their sums. A block of 128 threads computes 128 m x 64 or 32 n. It loads the next stage of gemm_k
// into registers while it multiplies the current stage, which is in shared memory as fp32. A thread
// owns 8 m x 8 or 4 n and reads both operands 16 bytes at a time. Narrow groups share a tile:
// 2^group_bits groups divide its columns and the rows of `a` in a stage. This fills the tile, but a
// group of 4 channels loads 8 times as much of `a` per FMA as a group of 32. Limited by instruction
// issue: the bounds checks and addresses of `a` take nearly half as many slots as the FMAs.
// Registers and blocks per SM: tests/kernels/resources.txt.
#include <algorithm>
#include <utility>

#include "kernels/conv/conv.cuh"
#include "kernels/cuda/column_sums.cuh"
#include "kernels/gemm/conv_geometry.cuh"

namespace bv::BAREVISION_GPU {
namespace {

constexpr int threads = 128, warps = threads / warp_size;
constexpr int blocks_per_sm = 3;  // limited by registers
constexpr int tile_m = 128;
constexpr int wide = 64, narrow = 32;  // the two values of tile_n

// ---- The groups of a tile -----------------------------------------------------------------------
struct ColumnTiles {
  int groups, group_n;  // number of groups; gemm_n per group
  int tile_n;
  int group_bits, width_bits;  // 2^group_bits groups per tile, of 2^width_bits columns each
  int count;                   // tiles of all groups
  int per_group;               // tiles per group, more than 1 if a group is wider than a tile

  __host__ __device__ int channels() const { return groups * group_n; }
  __device__ int first_group(int tile) const { return tile / per_group << group_bits; }
};

// A column of a tile, 0 ... tile_n - 1.
struct Column {
  int group, in_group;
  bool in_bounds;
  __device__ Column(const ColumnTiles& c, int tile, int column) {
    const int in_tile = column >> c.width_bits;
    group = c.first_group(tile) + in_tile;
    in_group = tile % c.per_group * c.tile_n + column - (in_tile << c.width_bits);
    in_bounds = group < c.groups && in_group < c.group_n;
  }
  __device__ int channel(const ColumnTiles& c) const { return group * c.group_n + in_group; }
};

ColumnTiles column_tiles(int groups, int group_n) {
  ColumnTiles c{.groups = groups, .group_n = group_n, .tile_n = group_n > narrow ? wide : narrow};
  c.width_bits = c.tile_n == wide ? 6 : 5;
  // A thread's four neighbouring columns belong to one group.
  for (; 1 << (c.width_bits - 1) >= std::max(group_n, 4) && 1 << c.group_bits < groups;
       ++c.group_bits)
    --c.width_bits;
  c.per_group = ceil_div(group_n, c.tile_n);
  c.count = ceil_div(groups, 1 << c.group_bits) * c.per_group;
  return c;
}

// The arguments of all three directions.
struct Product {
  Geometry geometry;
  void* out;             // [pixels, columns.channels()]; weight gradient: [parts, K, R, S, tap_k]
  const void* add;       // as out, or null
  MergeMoments moments;  // of the tiles of pixels; moments.moments null: not wanted
  RowParts parts;
  const void* image;  // [N, H, W, groups * tap_k]
  const void* b;      // weight [K, R, S, C / groups]; weight gradient: dout [pixels, K]
  int tap_k;          // gemm_k per tap: channels of the image per group
  ColumnTiles columns;
  Divisor by_tap_k, by_tiles;   // by_tiles: columns.count
  int m_tiles, steps_per_part;  // weight gradient
  bool accumulate;
};

// ---- A stage, and a thread's share of the product -----------------------------------------------
template <int tile_n>
struct Stage {
  static constexpr int rows = tile_n == wide ? 16 : 32;  // of a: gemm_k x groups of the tile

  // [gemm_k, group][m]. Eight floats of padding put a quarter-warp's reads, from four groups at two
  // values of m, into different banks.
  alignas(16) float a[rows][tile_m + 8];
  float b[rows][tile_n + 4];  // [gemm_k][n]
};

template <int tile_n>
using Merge = LastBlock<MergeMoments, threads, tile_n, 1>;

template <int tile_n>
struct Shared {
  union {
    Stage<tile_n> stage[2];
    Moments moments[warps][tile_n];
    typename Merge<tile_n>::Shared merge;
  };
};

// A thread computes rows m() ... m() + 3 and the four rows 64 below, in columns n() ... n() + 3 and
// (wide tiles) the four columns 32 to the right. Lanes form a 4 x 8 grid in which lane ^ 2 has the
// same m and lane ^ 1 the same n, so that shared memory serves their 16-byte reads together.
template <int tile_n>
struct Accumulators {
  static constexpr int ns = tile_n / 8;
  static constexpr unsigned m_lane_bits = 0b10001;  // bits of a lane's number that select m

  float at[8][ns] = {};

  __device__ static int m() {
    const int lane = threadIdx.x % warp_size;
    return (threadIdx.x / warp_size * 4 + lane / 16 * 2 + lane % 2) * 4;
  }
  __device__ static int n() { return threadIdx.x / 2 % 8 * 4; }
  __device__ static int m_of(int x) { return m() + x / 4 * (tile_m / 2) + x % 4; }
  __device__ static int n_of(int y) { return n() + y / 4 * (tile_n / 2) + y % 4; }

  __device__ void add(const Stage<tile_n>& s, int group_bits) {
    const int group = n() * (1 << group_bits) / tile_n;
#pragma unroll 4
    for (int k = 0; k < Stage<tile_n>::rows >> group_bits; ++k) {
      float a[8], b[ns];
      read(s.a[(k << group_bits) + group] + m(), tile_m / 2, a);
      read(s.b[k] + n(), tile_n / 2, b);
#pragma unroll
      for (int x = 0; x < 8; ++x)
#pragma unroll
        for (int y = 0; y < ns; ++y) at[x][y] = fmaf(a[x], b[y], at[x][y]);
    }
  }

  template <int count>
  __device__ static void read(const float* from, int apart, float (&to)[count]) {
#pragma unroll
    for (int q = 0; q < count; q += 4) {
      const auto four = load<4>(from + q / 4 * apart);
#pragma unroll
      for (int x = 0; x < 4; ++x) to[q + x] = four.at[x];
    }
  }
};

// A thread's loads of a stage: all rows of `a` at m = threadIdx.x, and some elements of b, so that
// neighbouring threads read neighbouring memory.
template <class T, int tile_n, int a_run, bool b_along_k>
struct StageLoads {
  static constexpr int rows = Stage<tile_n>::rows, bs = tile_n * rows / threads;

  int group_bits;
  T a[rows];  // [gemm_k / a_run, group, gemm_k % a_run]: a load fills neighbouring registers
  T b[bs];

  __device__ static constexpr int a_index(int group_bits, int k, int group) {
    return ((k / a_run << group_bits) + group) * a_run + k % a_run;
  }
  // Row and column in the stage of element i of b, and whether the element exists.
  __device__ int b_row(int i) const {
    const int thread = static_cast<int>(threadIdx.x);
    return b_along_k ? thread & ((rows >> group_bits) - 1)
                     : thread / tile_n + i * (threads / tile_n);
  }
  __device__ int b_column(int i) const {
    const int thread = static_cast<int>(threadIdx.x);
    return b_along_k ? (thread + i * threads) / (rows >> group_bits) : thread % tile_n;
  }
  __device__ bool has_b(int i) const { return i < bs >> group_bits; }

  __device__ void put(Stage<tile_n>& s) const {
#pragma unroll
    for (int i = 0; i < rows; ++i) {
      const int run = i / a_run, group = run & ((1 << group_bits) - 1);
      const int k = (run >> group_bits) * a_run + i % a_run;
      s.a[a_run == 1 ? i : (k << group_bits) + group][threadIdx.x] = to_float(a[i]);
    }
#pragma unroll
    for (int i = 0; i < bs; ++i)
      if (has_b(i)) s.b[b_row(i)][b_column(i)] = to_float(b[i]);
  }
};

// Calls f.template operator()<group_bits>() with group_bits, at most max_bits, as a constant.
template <int max_bits, int bits = 0, class F>
__device__ void by_group_bits(int group_bits, F f) {
  if constexpr (bits < max_bits)
    if (group_bits != bits) return by_group_bits<max_bits, bits + 1>(group_bits, f);
  f.template operator()<bits>();
}

// Adds the products of steps [first, last) of gemm_k to `sums`. `loads` has fetch_a<group_bits>(k)
// and fetch_b(k).
template <int tile_n, class Loads>
__device__ void multiply(Accumulators<tile_n>& sums, Loads& loads, int first, int last,
                         Shared<tile_n>& s) {
  const auto fetch = [&](int step) {
    const int k = step * (Stage<tile_n>::rows >> loads.group_bits);
    by_group_bits<tile_n == wide ? 0 : 3>(
        loads.group_bits, [&]<int group_bits> { loads.template fetch_a<group_bits>(k); });
    loads.fetch_b(k);
  };
  // fetch() is most of the kernel's code, so one call serves all stages, the first included.
  for (int step = first; step <= last; ++step) {
    const int stage = (step - first) % 2;
    if (step < last) fetch(step);
    if (step > first) sums.add(s.stage[1 - stage], loads.group_bits);
    if (step < last) loads.put(s.stage[stage]);
    __syncthreads();
  }
}

// ---- Forward and input gradient -----------------------------------------------------------------
struct Tile : Phase {
  int pixel, column_tile;  // the first pixel; which tile of columns

  template <bool input_gradient>
  __device__ static Tile of_block(const Product& p) {
    const int block = static_cast<int>(blockIdx.x), pixel_tile = p.by_tiles.divide(block);
    return {Phase::of_block<input_gradient>(p.geometry, static_cast<int>(blockIdx.y),
                                            static_cast<int>(gridDim.y)),
            pixel_tile * tile_m, block - pixel_tile * p.columns.count};
  }
  __device__ int gemm_k(const Product& p) const { return y.taps * x.taps * p.tap_k; }
};

template <class T, int tile_n, bool input_gradient>
struct PixelLoads : StageLoads<T, tile_n, 4, !input_gradient> {
  using Base = StageLoads<T, tile_n, 4, !input_gradient>;
  using Base::b, Base::bs, Base::group_bits, Base::rows;

  const Product& p;
  const Geometry& g;
  const Tile& t;
  const T* pixel;  // this thread's, at tap 0, 0, in the tile's first group; may be out of bounds
  int h, w;        // of tap 0, 0
  int groups;      // how many of the tile's groups are in bounds
  int gemm_k;
  Divisor by_taps_x;
  // The channel of each element of b: in forward its index in K, in the input gradient its index in
  // the group's C; -1: out of bounds.
  int channel[input_gradient ? 1 : bs];

  __device__ PixelLoads(const Product& product, const Tile& tile)
      : p(product), g(product.geometry), t(tile), gemm_k(t.gemm_k(p)), by_taps_x(max(t.x.taps, 1)) {
    const int first = p.columns.first_group(t.column_tile);
    group_bits = tile_n == wide ? 0 : p.columns.group_bits;
    groups = min(p.columns.groups - first, 1 << group_bits);

    const int at = t.pixel + static_cast<int>(threadIdx.x);
    const Pixel of(g, at < g.pixels ? at : 0);
    h = of.y * t.y.step + t.y.first, w = of.x * t.x.step + t.x.first;
    pixel = static_cast<const T*>(p.image) +
            (int64_t{of.image * g.H + h} * g.W + w) * (p.columns.groups * p.tap_k) +
            first * p.tap_k;
    if (at >= g.pixels) h = g.H;  // every tap is out of bounds

    for (int i = 0; i < (input_gradient ? 1 : bs); ++i) {
      // (The column is arbitrary where !has_b(i).)
      const Column column(p.columns, t.column_tile, this->b_column(i) % tile_n);
      channel[i] = !column.in_bounds ? -1
                   : input_gradient  ? column.in_group
                                     : column.channel(p.columns);
    }
  }

  struct Tap {
    int i, j, d;  // the tap's row and column in the phase; the channel in the group
    __device__ Tap(const PixelLoads& l, int k) {
      const int tap = l.p.by_tap_k.divide(k);
      d = k - tap * l.p.tap_k;
      i = l.by_taps_x.divide(tap), j = tap - i * l.t.x.taps;
    }
  };

  // Fetches four of gemm_k at a time, with one load per group if all four belong to one tap.
  template <int group_bits>
  __device__ void fetch_a(int first) {
    const bool quads = p.tap_k % 4 == 0;
#pragma unroll
    for (int k = 0; k < rows >> group_bits; k += 4)
      if (quads)
        fetch_quad<group_bits, 4>(first, k);
      else
        fetch_quad<group_bits, 1>(first, k);
  }
  template <int group_bits, int size>
  __device__ void fetch_quad(int first, int quad) {
#pragma unroll
    for (int k = quad; k < quad + 4; k += size) {
      const Tap at(*this, first + k);
      const bool in_bounds = first + k < gemm_k &&
                             static_cast<unsigned>(h + at.i) < static_cast<unsigned>(g.H) &&
                             static_cast<unsigned>(w + at.j) < static_cast<unsigned>(g.W);
      const T* from = pixel + int64_t{at.i * g.W + at.j} * (p.columns.groups * p.tap_k) + at.d;
#pragma unroll
      for (int group = 0; group < 1 << group_bits; ++group) {
        const auto x =
            in_bounds && group < groups ? load<size>(from + group * p.tap_k) : Elements<T, size>{};
#pragma unroll
        for (int e = 0; e < size; ++e) this->a[Base::a_index(group_bits, k + e, group)] = x.at[e];
      }
    }
  }

  __device__ void fetch_b(int first) {
    const int C = input_gradient ? p.columns.group_n : p.tap_k, filter = g.R * g.S * C;
    const int group = Column(p.columns, t.column_tile, this->b_column(0)).group;
    const T* weight = nullptr;
#pragma unroll
    for (int i = 0; i < bs; ++i) {
      const int k = first + this->b_row(i), n = channel[input_gradient ? 0 : i];
      const Tap at(*this, k);
      const int r = t.y.filter + at.i * t.y.filter_step, s = t.x.filter + at.j * t.x.filter_step;
      if (input_gradient || i == 0)  // in forward, all i have the same k
        weight = static_cast<const T*>(p.b) + (r * g.S + s) * C + (input_gradient ? n : at.d);
      const int out_channel = input_gradient ? group * p.tap_k + at.d : n;
      b[i] = this->has_b(i) && k < gemm_k && n >= 0 ? weight[int64_t{out_channel} * filter] : T{};
    }
  }
};

// Stores out = sum + add, rounded, for four neighbours of which `left` are in bounds, `size` per
// access. The stored values replace `sum`.
template <class T, int size>
__device__ void store_four(T* out, const T* add, int left, float* sum) {
#pragma unroll
  for (int k = 0; k < 4; k += size) {
    Elements<T, size> x{};
    if (k < left) {
      if (add) {
        x = load<size>(add + k);
#pragma unroll
        for (int e = 0; e < size; ++e) sum[k + e] += to_float(x.at[e]);
      }
#pragma unroll
      for (int e = 0; e < size; ++e) x.at[e] = from_float<T>(sum[k + e]);
      store(out + k, x);
    }
#pragma unroll
    for (int e = 0; e < size; ++e) sum[k + e] = to_float(x.at[e]);
  }
}

template <class T, int tile_n, bool input_gradient>
__device__ void store_pixels(const Product& p, const Tile& t, Accumulators<tile_n>& sums) {
#pragma unroll
  for (int x = 0; x < 8; ++x) {
    const int row = out_row<input_gradient>(p.geometry, t, t.pixel + sums.m_of(x));
    if (row < 0) continue;
#pragma unroll
    for (int y = 0; y < sums.ns; y += 4) {
      const Column column(p.columns, t.column_tile, sums.n_of(y));
      if (!column.in_bounds) continue;
      const int64_t at = int64_t{row} * p.columns.channels() + column.channel(p.columns);
      T* const out = static_cast<T*>(p.out) + at;
      const T* const add = input_gradient && p.add ? static_cast<const T*>(p.add) + at : nullptr;
      if (p.columns.group_n % 4 == 0)
        store_four<T, 4>(out, add, 4, sums.at[x] + y);
      else
        store_four<T, 1>(out, add, p.columns.group_n - column.in_group, sums.at[x] + y);
    }
  }
}

// Moments of column y over this thread's pixels; only the tile's first `left` pixels are in bounds.
template <int tile_n>
__device__ Moments thread_moments(int left, const Accumulators<tile_n>& sums, int y) {
  int count = 0;
  float sum = 0, m2 = 0;
#pragma unroll
  for (int x = 0; x < 8; ++x)
    if (sums.m_of(x) < left) sum += sums.at[x][y], ++count;
  const float mean = count ? sum / static_cast<float>(count) : 0;
#pragma unroll
  for (int x = 0; x < 8; ++x)
    if (sums.m_of(x) < left) m2 += (sums.at[x][y] - mean) * (sums.at[x][y] - mean);
  return {static_cast<float>(count), mean, m2};
}

// Mean and M2 of the tile's columns: per thread, then per warp, then per block.
template <int tile_n>
__device__ void tile_moments(const Product& p, const Tile& t, const Accumulators<tile_n>& sums,
                             Shared<tile_n>& s) {
  const int warp = threadIdx.x / warp_size, lane = threadIdx.x % warp_size;
#pragma unroll
  for (int y = 0; y < sums.ns; ++y) {
    Moments of = thread_moments(p.geometry.pixels - t.pixel, sums, y);
#pragma unroll
    for (const int bit : {1, 16})
      merge(of, {__shfl_xor_sync(~0u, of.count, bit), __shfl_xor_sync(~0u, of.mean, bit),
                 __shfl_xor_sync(~0u, of.m2, bit)});
    if (!(lane & sums.m_lane_bits)) s.moments[warp][sums.n_of(y)] = of;
  }
  __syncthreads();
  const auto channel = [&](int n) {
    const Column column(p.columns, t.column_tile, n);
    return column.in_bounds ? column.channel(p.columns) : -1;
  };
  const int thread = static_cast<int>(threadIdx.x), part = t.pixel / tile_m;
  if (const int c = channel(thread); thread < tile_n && c >= 0) {
    Moments all = s.moments[0][thread];
#pragma unroll
    for (int w = 1; w < warps; ++w) merge(all, s.moments[w][thread]);
    p.moments.save(p.parts.partial + int64_t{part} * 2 * p.parts.C + c, all);
  }
  Merge<tile_n>::run(p.moments, p.parts, part, t.column_tile, channel, s.merge);
}

// Block (tile, phase).
template <class T, int tile_n, bool input_gradient>
__global__ void __launch_bounds__(threads, blocks_per_sm) conv_direct_tile(Product p) {
  await_kernel_ahead();
  auto& s = shared<Shared<tile_n>>();
  const Tile t = Tile::of_block<input_gradient>(p);
  const int steps = ceil_div(t.gemm_k(p), Stage<tile_n>::rows >> p.columns.group_bits);
  if (steps == 0 && p.add == p.out) return;  // no taps, and added in place
  Accumulators<tile_n> sums;
  PixelLoads<T, tile_n, input_gradient> loads(p, t);
  multiply(sums, loads, 0, steps, s);
  store_pixels<T, tile_n, input_gradient>(p, t, sums);
  if (!input_gradient && p.moments.moments) tile_moments(p, t, sums, s);
}

// ---- Weight gradient ----------------------------------------------------------------------------
// m enumerates the elements of the filter; for each pixel, each reads a different element of inp.
template <class T, int tile_n>
struct FilterLoads : StageLoads<T, tile_n, 1, false> {
  using Base = StageLoads<T, tile_n, 1, false>;
  using Base::group_bits, Base::rows;

  const Product& p;
  const Geometry& g;
  const T* inp;   // this thread's element for pixel 0 in the first group; may be out of bounds
  const T* dout;  // this thread's channel of pixel 0; null if out of bounds
  int h, w;       // of the element for pixel 0
  int groups;     // how many of the tile's groups are in bounds; 0 if the thread has no element

  __device__ FilterLoads(const Product& product, int m, int tile)
      : p(product), g(product.geometry) {
    const int element = m + static_cast<int>(threadIdx.x), tap = p.by_tap_k.divide(element);
    const int r = tap / g.S, first = p.columns.first_group(tile);
    h = r - g.padding, w = tap - r * g.S - g.padding;
    inp = static_cast<const T*>(p.image) + (int64_t{h} * g.W + w) * (p.columns.groups * p.tap_k) +
          first * p.tap_k + (element - tap * p.tap_k);
    group_bits = tile_n == wide ? 0 : p.columns.group_bits;
    groups = r < g.R ? min(p.columns.groups - first, 1 << group_bits) : 0;
    const Column column(p.columns, tile, this->b_column(0));
    dout = column.in_bounds ? static_cast<const T*>(p.b) + column.channel(p.columns) : nullptr;
  }

  template <int group_bits>
  __device__ void fetch_a(int first) {
    Pixel at(g, first);
#pragma unroll
    for (int k = 0; k < rows >> group_bits; ++k, at.go_on(g)) {
      const int y = at.y * g.stride, x = at.x * g.stride;
      const bool in_bounds = first + k < g.pixels &&
                             static_cast<unsigned>(h + y) < static_cast<unsigned>(g.H) &&
                             static_cast<unsigned>(w + x) < static_cast<unsigned>(g.W);
      const T* from = inp + int64_t{(at.image * g.H + y) * g.W + x} * (p.columns.groups * p.tap_k);
#pragma unroll
      for (int group = 0; group < 1 << group_bits; ++group)
        this->a[Base::a_index(group_bits, k, group)] =
            in_bounds && group < groups ? from[group * p.tap_k] : T{};
    }
  }

  __device__ void fetch_b(int first) {
#pragma unroll
    for (int i = 0; i < Base::bs; ++i) {
      const int pixel = first + this->b_row(i);
      this->b[i] = this->has_b(i) && dout && pixel < g.pixels
                       ? dout[int64_t{pixel} * p.columns.channels()]
                       : T{};
    }
  }
};

template <int tile_n>
__device__ void store_filters(const Product& p, int m, int tile, const Accumulators<tile_n>& sums) {
  const int filter = p.geometry.R * p.geometry.S * p.tap_k;
  float* const out =
      static_cast<float*>(p.out) + int64_t{blockIdx.y} * p.columns.channels() * filter;
#pragma unroll
  for (int y = 0; y < sums.ns; ++y) {
    const Column column(p.columns, tile, sums.n_of(y));
    if (!column.in_bounds) continue;
    float* const to = out + int64_t{column.channel(p.columns)} * filter;
#pragma unroll
    for (int x = 0; x < 8; ++x)
      if (const int at = m + sums.m_of(x); at < filter)
        to[at] = p.accumulate ? to[at] + sums.at[x][y] : sums.at[x][y];
  }
}

// Block (tile, part of the pixels).
template <class T, int tile_n>
__global__ void __launch_bounds__(threads, blocks_per_sm) conv_direct_weight_tile(Product p) {
  await_kernel_ahead();
  auto& s = shared<Shared<tile_n>>();
  const int block = static_cast<int>(blockIdx.x), tile = block / p.m_tiles;
  const int m = block % p.m_tiles * tile_m;
  const int steps = ceil_div(p.geometry.pixels, Stage<tile_n>::rows >> p.columns.group_bits);
  const int first = static_cast<int>(blockIdx.y) * p.steps_per_part;
  Accumulators<tile_n> sums;
  FilterLoads<T, tile_n> loads(p, m, tile);
  multiply(sums, loads, first, min(first + p.steps_per_part, steps), s);
  store_filters(p, m, tile, sums);
}

// ---- Launches -----------------------------------------------------------------------------------
// Calls f.template operator()<T, tile_n>().
template <class F>
void by_tile(DType dtype, int tile_n, F f) {
  by_dtype(dtype, [&]<class T> {
    if (tile_n == wide)
      f.template operator()<T, wide>();
    else
      f.template operator()<T, narrow>();
  });
}

template <bool input_gradient>
void launch_pixels(const Product& p, DType dtype, cudaStream_t stream) {
  const dim3 grid(unsigned(ceil_div(p.geometry.pixels, tile_m) * p.columns.count),
                  input_gradient ? unsigned(p.geometry.stride * p.geometry.stride) : 1u);
  by_tile(dtype, p.columns.tile_n, [&]<class T, int tile_n> {
    launch<conv_direct_tile<T, tile_n, input_gradient>>(grid, threads, sizeof(Shared<tile_n>),
                                                        stream, p);
  });
}

// The arguments that depend only on the direction and shape; image_channels and n: of all groups.
Product product(const Geometry& geometry, int groups, int image_channels, int n) {
  const ColumnTiles columns = column_tiles(groups, n / groups);
  return {.geometry = geometry,
          .tap_k = image_channels / groups,
          .columns = columns,
          .by_tap_k = Divisor(image_channels / groups),
          .by_tiles = Divisor(columns.count)};
}

std::pair<Product, PixelParts> weight_plan(const DeviceProps& props, const ConvShape& s) {
  Product p = product(Geometry::forward(s), s.groups, s.C, s.K);
  p.m_tiles = ceil_div(s.R * s.S * p.tap_k, tile_m);
  const int rows = p.columns.tile_n == wide ? Stage<wide>::rows : Stage<narrow>::rows;
  const int steps = ceil_div(p.geometry.pixels, rows >> p.columns.group_bits);
  const PixelParts parts =
      parts_of_pixels(s, steps, p.m_tiles * p.columns.count, props.sms * blocks_per_sm);
  p.steps_per_part = parts.steps;
  return {p, parts};
}

}  // namespace

// ---- The operations -----------------------------------------------------------------------------
size_t conv_direct_forward_bytes(const DeviceProps&, const ConvForward& op) {
  return sizeof(float) * 2 * size_t(ceil_div(Geometry::forward(op.shape).pixels, tile_m)) *
         size_t(op.shape.K);
}

void conv_direct_forward(const DeviceProps& props, const ConvForward& op, cudaStream_t stream) {
  const ConvShape& s = op.shape;
  Product p = product(Geometry::forward(s), s.groups, s.C, s.K);
  p.out = op.out, p.image = op.inp, p.b = op.weight;
  if (op.batch_stats) {
    const int pixels = p.geometry.pixels;
    p.moments = {.moments = op.batch_stats, .rows_of_part = tile_m, .rows = pixels, .C = s.K};
    p.parts = row_parts(props, op.workspace, ceil_div(pixels, tile_m), s.K, p.columns.count);
  }
  launch_pixels<false>(p, op.dtype, stream);
}

void conv_direct_backward_input(const DeviceProps&, const ConvBackwardInput& op,
                                cudaStream_t stream) {
  const ConvShape& s = op.shape;
  Product p = product(Geometry::backward_input(s), s.groups, s.K, s.C);
  p.out = op.dinp, p.image = op.dout, p.b = op.weight, p.add = op.add;
  launch_pixels<true>(p, op.dtype, stream);
}

size_t conv_direct_backward_weight_bytes(const DeviceProps& props, const ConvBackwardWeight& op) {
  return weight_plan(props, op.shape).second.bytes(op.shape);
}

void conv_direct_backward_weight(const DeviceProps& props, const ConvBackwardWeight& op,
                                 cudaStream_t stream) {
  const ConvShape& s = op.shape;
  auto [p, parts] = weight_plan(props, s);
  const bool direct = parts.count == 1;
  p.out = direct ? op.dweight : op.workspace, p.image = op.inp, p.b = op.dout;
  p.accumulate = direct && op.accumulate;
  const dim3 grid(unsigned(p.m_tiles * p.columns.count), unsigned(parts.count));
  by_tile(op.dtype, p.columns.tile_n, [&, &p = p]<class T, int tile_n> {
    launch<conv_direct_weight_tile<T, tile_n>>(grid, threads, sizeof(Shared<tile_n>), stream, p);
  });
  if (!direct)
    finish_column_sums({.out = op.dweight,
                        .partial = static_cast<const float*>(op.workspace),
                        .C = static_cast<int64_t>(s.weight_count()),
                        .blocks = parts.count,
                        .accumulate = op.accumulate},
                       stream);
}

}  // namespace bv::BAREVISION_GPU

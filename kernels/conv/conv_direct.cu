// Convolution by plain FMA, for every dtype and shape: fp32, groups, any number of channels, and the
// input's gradient of a first layer. All three directions are products
//   sum[i, j] = sum over the depth of a[depth, i] b[depth, j]
//   direction        i                j                  depth                       a      b
//   forward          pixels           K of a group       taps, then C of the group   inp    weight
//   input gradient   pixels, phases   C of a group       taps, then K of the group   dout   weight
//   weight gradient  taps, then C     K of a group       pixels                      inp    dout
// of each group (conv_geometry.cuh: pixels, phases, taps). The matrices a are never written out.
//   forward   out =; moments =, of out as it is rounded: a tile's by two passes over registers,
//             which merge_moments merges
//   input     dinp = sum + add, added in fp32 before rounding; add may be dinp
//   weight    dweight = or +=, by accumulate. Blocks share out the pixels where a tile each doesn't
//             fill the chip, as long as each has 8 steps and their sums stay within 64 MB;
//             finish_column_sums adds these up in their order
//
// A block of 128 threads computes a tile of 128 i x n j. A stage of the depth goes from memory to
// registers while the one before is multiplied, and from there to the other half of shared memory,
// fp32, transposed so that a thread reads neighbouring i, and neighbouring j, in 16 bytes. Each
// thread multiplies 8 i by 8 j (n = 64) or by 4 (n = 32): per row of the depth 64 FMA for 4 reads of
// shared memory, or 32 for 3.
// Narrow groups share a tile: 2^bits of them have n / 2^bits of the j each, and of a stage's 32 rows
// of a each. So 32 groups of 4 channels fill the j of tiles, though they load 8 times as much of a
// for an FMA as one group of 32 does, and their weight gradient has 36 of a tile's 128 i.
//
// Calculated clocks of an SM for a step of a 128 x 64 tile, 16 of the depth, 131072 FMA,
// forward in fp32 where C is a multiple of 4:
//   FMA              128 a clock                                              1024
//   issue            4 warps * (1116 to multiply, about 650 to load) / 4      1770   (SASS, counted)
//   shared memory    4 warps * (16 * 4 reads of 1 or 2 clocks, 32 of writes)   380 - 640
//   L1               4 warps * 4 loads of 32 rows                              512   the same path
// Issue is the limit, 0.58 of an H200's 59 Tflop/s of FMA (132 SMs, 1.755 GHz). Nothing
// of this is measured.
//
// Tile       registers (sm_80, sm_90a)   shared   blocks of an SM (sm_80, sm_90)
// 128 x 64   139 - 161, 155 - 167        25.5 KB  3, 3
// 128 x 32   141 - 163, 149 - 168        43 KB    3, 3
#include "kernels/conv/conv.cuh"
#include "kernels/conv/conv_geometry.cuh"
#include "kernels/cuda/column_sums.cuh"

namespace bv::BAREVISION_GPU {
namespace {

constexpr int threads = 128, warps = threads / warp_size;
constexpr int blocks_per_sm = 3;  // as registers allow
constexpr int m = 128;            // i of a tile
constexpr int wide = 64, narrow = 32;

// ---- The groups of a tile -----------------------------------------------------------------------
// A tile's j, seen from place 0 ... n - 1 of the tile.
struct Columns {
  int groups, of_group;  // of all; j of one group
  int n;                 // of the tile
  int bits, width_bits;  // 2^bits groups in a tile, with 2^width_bits places each
  int tiles;             // beside each other, of all groups
  int tiles_of_group;    // more than one: a group is wider than a tile

  __host__ __device__ int channels() const { return groups * of_group; }
  __device__ int first_group(int tile) const { return tile / tiles_of_group << bits; }
};

struct Column {
  int group, in;  // of all groups; of the group's j
  bool there;
  __device__ Column(const Columns& c, int tile, int place) {
    const int in_tile = place >> c.width_bits;
    group = c.first_group(tile) + in_tile;
    in = tile % c.tiles_of_group * c.n + place - (in_tile << c.width_bits);
    there = group < c.groups && in < c.of_group;
  }
  __device__ int channel(const Columns& c) const { return group * c.of_group + in; }
};

Columns columns(int groups, int of_group) {
  Columns c{.groups = groups, .of_group = of_group, .n = of_group > narrow ? wide : narrow};
  c.width_bits = c.n == wide ? 6 : 5;
  // A thread's four j are of one group.
  for (; 1 << (c.width_bits - 1) >= std::max(of_group, 4) && 1 << c.bits < groups; ++c.bits)
    --c.width_bits;
  c.tiles_of_group = ceil_div(of_group, c.n);
  c.tiles = ceil_div(groups, 1 << c.bits) * c.tiles_of_group;
  return c;
}

// ---- A stage, and what a thread multiplies of it ------------------------------------------------
template <int n>
constexpr int stage_rows = n == wide ? 16 : 32;  // of a, of all groups of the tile

template <int n>
struct Stage {
  // [depth, group][i]: 2^bits neighbouring rows are of the tile's groups. The eight more put what a
  // quarter of a warp reads of four groups, at two i, into different banks.
  alignas(16) float a[stage_rows<n>][m + 8];
  float b[stage_rows<n>][n + 4];  // [depth][j of all groups]
};

template <int n>
struct Sums {
  static constexpr int js = n / 8;

  float at[8][js] = {};

  // This thread's i: i() ... + 3, and those 64 further on. Its j likewise: 4, and those n/2 further.
  // Lanes lie 4 x 8, so that each has a neighbour (lane ^ 1, lane ^ 2) that reads the same i and one
  // that reads the same j: shared memory answers those 16-byte reads together.
  static constexpr unsigned i_bits = 0b10001;  // of a lane's number; the others are j's
  __device__ static int i() {
    const int lane = threadIdx.x % warp_size;
    return (threadIdx.x / warp_size * 4 + lane / 16 * 2 + lane % 2) * 4;
  }
  __device__ static int j() { return threadIdx.x / 2 % 8 * 4; }
  __device__ static int i_of(int x) { return i() + x / 4 * (m / 2) + x % 4; }
  __device__ static int j_of(int x) { return j() + x / 4 * (n / 2) + x % 4; }

  __device__ void add(const Stage<n>& s, int group_bits) {
    constexpr int rows = stage_rows<n>;
    const int bits = n == wide ? 0 : group_bits, group = j() * (1 << bits) / n;
#pragma unroll 4
    for (int row = 0; row < rows >> bits; ++row) {
      float a[8], b[js];
      read(s.a[(row << bits) + group] + i(), m / 2, a);
      read(s.b[row] + j(), n / 2, b);
#pragma unroll
      for (int x = 0; x < 8; ++x)
#pragma unroll
        for (int y = 0; y < js; ++y) at[x][y] = fmaf(a[x], b[y], at[x][y]);
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

// All of a product: loader.fetch(step) reads a step's elements from memory, loader.put(stage) writes
// them to a stage.
template <int n>
struct Shared {
  Stage<n> stage[2];
};
template <int n, class Loader>
__device__ void multiply(Sums<n>& sums, Loader& loader, int first, int last, int group_bits,
                         Shared<n>& s) {
  if (first == last) return;
  loader.fetch(first);
  loader.put(s.stage[0]);
  __syncthreads();
  for (int step = first; step < last; ++step) {
    const int now = (step - first) % 2;
    if (step + 1 < last) loader.fetch(step + 1);
    sums.add(s.stage[now], group_bits);
    if (step + 1 < last) loader.put(s.stage[1 - now]);
    __syncthreads();
  }
}

// ---- Forward and input gradient -----------------------------------------------------------------
struct Product : Geometry {
  void* out;           // [pixels, groups * columns.of_group]
  const void* add;     // as out, or null
  float* partial;      // [tiles along the pixels, 2, channels of out]: mean and M2 of each; or null
  const void* image;   // [N, H, W, groups * depth]
  const void* weight;  // [K, R, S, C / groups]
  int depth;           // of a group
  Columns columns;
  Divisor by_depth, by_tiles;
};

struct Tile : Phase {
  int pixel, column_tile;  // the first pixel; which tile of columns
};

template <bool input_gradient>
__device__ Tile tile_of_block(const Product& p) {
  Tile t{
      Phase::of_block<input_gradient>(p, static_cast<int>(blockIdx.y), static_cast<int>(gridDim.y)),
      0, 0};
  const int block = static_cast<int>(blockIdx.x), pixel_tile = p.by_tiles.divide(block);
  t.pixel = pixel_tile * m;
  t.column_tile = block - pixel_tile * p.columns.tiles;
  return t;
}

// Calls f.template operator()<bits>() with the groups' bits as a constant.
template <int n, class F>
__device__ void by_bits(int bits, F f) {
  if (n == wide || bits == 0)
    f.template operator()<0>();
  else if (bits == 1)
    f.template operator()<n == wide ? 0 : 1>();
  else if (bits == 2)
    f.template operator()<n == wide ? 0 : 2>();
  else
    f.template operator()<n == wide ? 0 : 3>();
}

// A thread loads all rows of one pixel of a; of b, elements that lie side by side in memory with
// its neighbours': forward one row of some j, for the input gradient one j of some rows.
template <class T, int n, bool input_gradient>
struct Loader {
  static constexpr int rows = stage_rows<n>, bs = n * rows / threads;

  const Product& p;
  const Tile& t;
  const T* pixel;    // this thread's, at tap 0, 0, in the tile's first group; may lie outside
  int h, w;          // of tap 0, 0
  int groups, bits;  // of the tile: as far as there are any; and as many as have room
  int length;        // of the depth, all taps
  Divisor by_taps_x;
  int channel[input_gradient ? 1 : bs];  // forward: K of each of b; -1: none. Input gradient: place
                                         // in the group; -1: none
  T a[rows], b[bs];

  __device__ Loader(const Product& product, const Tile& tile)
      : p(product), t(tile), length(t.y.taps * t.x.taps * p.depth), by_taps_x(max(t.x.taps, 1)) {
    const int first = p.columns.first_group(t.column_tile);
    bits = n == wide ? 0 : p.columns.bits;
    groups = min(p.columns.groups - first, 1 << bits);

    const int at = t.pixel + static_cast<int>(threadIdx.x);
    const Pixel of(p, at < p.pixels ? at : 0);
    h = of.y * t.y.step + t.y.first, w = of.x * t.x.step + t.x.first;
    pixel = static_cast<const T*>(p.image) +
            (int64_t{of.image * p.H + h} * p.W + w) * (p.columns.groups * p.depth) +
            first * p.depth;
    if (at >= p.pixels) h = p.H;  // no tap lies inside

    for (int k = 0; k < (input_gradient ? 1 : bs); ++k) {
      // (Of those k that has_b leaves out, any.)
      const Column column(p.columns, t.column_tile, b_column(k) % n);
      channel[k] = !column.there ? -1 : input_gradient ? column.in : column.channel(p.columns);
    }
  }

  struct Place {
    int i, j, d;  // tap, and place in the group
    __device__ Place(const Loader& l, int row) {
      const int tap = l.p.by_depth.divide(row);
      d = row - tap * l.p.depth;
      i = l.by_taps_x.divide(tap), j = tap - i * l.t.x.taps;
    }
  };

  __device__ void fetch(int step) {
    const int first = step * (rows >> bits);
    by_bits<n>(bits, [&]<int bits> { fetch_a<bits>(first); });
    fetch_b(first);
  }

  // a[quad of rows, group, row of the quad].
  template <int bits>
  __device__ void fetch_a(int first) {
    const bool quads = p.depth % 4 == 0;
#pragma unroll
    for (int quad = 0; quad < (rows >> bits) / 4; ++quad)
      if (const int row = first + quad * 4; quads)
        fetch_quad<bits>(row, a + quad * (4 << bits));
      else
        fetch_rows<bits>(row, a + quad * (4 << bits));
  }
  template <int bits>
  __device__ void fetch_quad(int row, T* to) {
    const Place at(*this, row);
    const bool there = row < length && inside(at);
    const T* from = address(at);
#pragma unroll
    for (int group = 0; group < 1 << bits; ++group) {
      const auto four =
          there && group < groups ? load<4>(from + group * p.depth) : Elements<T, 4>{};
#pragma unroll
      for (int x = 0; x < 4; ++x) to[group * 4 + x] = four.at[x];
    }
  }
  template <int bits>
  __device__ void fetch_rows(int row, T* to) {
#pragma unroll
    for (int x = 0; x < 4; ++x) {
      const Place at(*this, row + x);
      const bool there = row + x < length && inside(at);
      const T* from = address(at);
#pragma unroll
      for (int group = 0; group < 1 << bits; ++group)
        to[group * 4 + x] = there && group < groups ? from[group * p.depth] : T{};
    }
  }
  __device__ bool inside(const Place& at) const {
    return static_cast<unsigned>(h + at.i) < static_cast<unsigned>(p.H) &&
           static_cast<unsigned>(w + at.j) < static_cast<unsigned>(p.W);
  }
  __device__ const T* address(const Place& at) const {
    return pixel + int64_t{at.i * p.W + at.j} * (p.columns.groups * p.depth) + at.d;
  }

  // Where the k-th of b lies in the stage, and how many there are.
  __device__ int b_row(int k) const {
    const int thread = static_cast<int>(threadIdx.x);
    return input_gradient ? thread / n + k * (threads / n) : thread & ((rows >> bits) - 1);
  }
  __device__ int b_column(int k) const {
    const int thread = static_cast<int>(threadIdx.x);
    return input_gradient ? thread % n : (thread + k * threads) / (rows >> bits);
  }
  __device__ bool has_b(int k) const { return k < bs >> bits; }

  __device__ void fetch_b(int first) {
    const int C = input_gradient ? p.columns.of_group : p.depth;
    const int filter = p.R * p.S * C;
    const auto* weight = static_cast<const T*>(p.weight);
    const auto tap = [&](const Place& at) {
      return ((t.y.filter + at.i * t.y.filter_step) * p.S + t.x.filter + at.j * t.x.filter_step) *
             C;
    };
    if (input_gradient) {
      const int group = Column(p.columns, t.column_tile, b_column(0)).group;
      weight += int64_t{group * p.depth} * filter + channel[0];
#pragma unroll
      for (int k = 0; k < bs; ++k) {
        const int row = first + b_row(k);
        const Place at(*this, row);
        b[k] = has_b(k) && row < length && channel[0] >= 0
                   ? weight[int64_t{at.d} * filter + tap(at)]
                   : T{};
      }
    } else {
      const int row = first + b_row(0);
      const Place at(*this, row);
      weight += tap(at) + at.d;
#pragma unroll
      for (int k = 0; k < bs; ++k)
        b[k] = has_b(k) && row < length && channel[k] >= 0 ? weight[int64_t{channel[k]} * filter]
                                                           : T{};
    }
  }

  __device__ void put(Stage<n>& s) const {
#pragma unroll
    for (int k = 0; k < rows; ++k) {
      const int quad = k / 4, group = quad & ((1 << bits) - 1), row = quad >> bits << 2 | k % 4;
      s.a[(row << bits) + group][threadIdx.x] = to_float(a[k]);
    }
#pragma unroll
    for (int k = 0; k < bs; ++k)
      if (has_b(k)) s.b[b_row(k)][b_column(k)] = to_float(b[k]);
  }
};

template <class T, int n, bool input_gradient>
struct Epilogue {
  static constexpr int js = n / 8;

  // out = sums + add, rounded; the sums become what is stored.
  __device__ static void store(const Product& p, const Tile& t, Sums<n>& sums) {
#pragma unroll
    for (int x = 0; x < 8; ++x) {
      const int row = out_row<input_gradient>(p, t, t.pixel + sums.i_of(x));
      if (row < 0) continue;
#pragma unroll
      for (int y = 0; y < js; y += 4) {
        const Column column(p.columns, t.column_tile, sums.j_of(y));
        if (!column.there) continue;
        four(p, int64_t{row} * p.columns.channels() + column.channel(p.columns),
             p.columns.of_group - column.in, sums.at[x] + y);
      }
    }
  }

  // Four neighbours, of which `left` are there.
  __device__ static void four(const Product& p, int64_t at, int left, float* sum) {
    T* const out = static_cast<T*>(p.out) + at;
    const T* const add = p.add ? static_cast<const T*>(p.add) + at : nullptr;
    Elements<T, 4> x;
    if (p.columns.of_group % 4 == 0) {
      if (input_gradient && add) {
        x = load<4>(add);
#pragma unroll
        for (int k = 0; k < 4; ++k) sum[k] += to_float(x.at[k]);
      }
#pragma unroll
      for (int k = 0; k < 4; ++k) x.at[k] = from_float<T>(sum[k]);
      bv::BAREVISION_GPU::store(out, x);
    } else {
#pragma unroll
      for (int k = 0; k < 4; ++k)
        if (k < left) {
          if (input_gradient && add) sum[k] += to_float(add[k]);
          out[k] = x.at[k] = from_float<T>(sum[k]);
        } else {
          x.at[k] = T{};
        }
    }
#pragma unroll
    for (int k = 0; k < 4; ++k) sum[k] = to_float(x.at[k]);
  }

  // partial = mean and M2 of the tile's columns: of a thread's eight pixels, then of a warp's, then
  // of all.
  struct Shared {
    Moments warp[warps][n];
  };
  __device__ static void moments(const Product& p, const Tile& t, const Sums<n>& sums, Shared& s) {
    const int warp = threadIdx.x / warp_size, lane = threadIdx.x % warp_size;
#pragma unroll
    for (int y = 0; y < js; ++y) {
      Moments of = of_thread(p.pixels - t.pixel, sums, y);
#pragma unroll
      for (const int bit : {1, 16})
        merge(of, {__shfl_xor_sync(~0u, of.count, bit), __shfl_xor_sync(~0u, of.mean, bit),
                   __shfl_xor_sync(~0u, of.m2, bit)});
      if (!(lane & sums.i_bits)) s.warp[warp][sums.j_of(y)] = of;
    }
    __syncthreads();
    if (threadIdx.x >= n) return;
    const Column column(p.columns, t.column_tile, static_cast<int>(threadIdx.x));
    if (!column.there) return;
    Moments all = s.warp[0][threadIdx.x];
#pragma unroll
    for (int w = 1; w < warps; ++w) merge(all, s.warp[w][threadIdx.x]);
    const int channels = p.columns.channels();
    float* to = p.partial + int64_t{t.pixel / m} * 2 * channels + column.channel(p.columns);
    to[0] = all.mean;
    to[channels] = all.m2;
  }
  __device__ static Moments of_thread(int left, const Sums<n>& sums, int y) {
    int count = 0;
    float sum = 0, m2 = 0;
#pragma unroll
    for (int x = 0; x < 8; ++x)
      if (sums.i_of(x) < left) sum += sums.at[x][y], ++count;
    const float mean = count ? sum / static_cast<float>(count) : 0;
#pragma unroll
    for (int x = 0; x < 8; ++x)
      if (sums.i_of(x) < left) m2 += (sums.at[x][y] - mean) * (sums.at[x][y] - mean);
    return {static_cast<float>(count), mean, m2};
  }
};

template <class T, int n, bool input_gradient>
struct ProductShared {
  union {
    Shared<n> stages;
    typename Epilogue<T, n, input_gradient>::Shared moments;
  };
};

// Block (tile, phase).
template <class T, int n, bool input_gradient>
__global__ void __launch_bounds__(threads, blocks_per_sm) conv_general_tile(Product p) {
  using Out = Epilogue<T, n, input_gradient>;
  auto& s = shared<ProductShared<T, n, input_gradient>>();
  const Tile t = tile_of_block<input_gradient>(p);
  constexpr int rows = stage_rows<n>;
  const int steps = ceil_div(t.y.taps * t.x.taps * p.depth, rows >> p.columns.bits);
  // Without a step, what is to be added to what is there already stays.
  if (steps == 0 && p.add == p.out) return;
  Sums<n> sums;
  Loader<T, n, input_gradient> loader(p, t);
  multiply(sums, loader, 0, steps, p.columns.bits, s.stages);
  Out::store(p, t, sums);
  if (!input_gradient && p.partial) Out::moments(p, t, sums, s.moments);
}

template <bool input_gradient>
void launch_product(const Product& p, DType dtype, cudaStream_t stream) {
  const dim3 grid(unsigned(ceil_div(p.pixels, m) * p.columns.tiles),
                  input_gradient ? unsigned(p.stride * p.stride) : 1u);
  by_dtype(dtype, [&]<class T> {
    const auto start = [&]<int n> {
      launch<conv_general_tile<T, n, input_gradient>>(
          grid, threads, sizeof(ProductShared<T, n, input_gradient>), stream, p);
    };
    if (p.columns.n == wide)
      start.template operator()<wide>();
    else
      start.template operator()<narrow>();
  });
}

// ---- Weight gradient ----------------------------------------------------------------------------
struct WeightProduct : Geometry {
  float* out;        // [parts, K, R, S, C / groups]
  const void* dout;  // [pixels, K]
  const void* inp;   // [N, H, W, C]
  int depth;         // C / groups
  Columns columns;
  Divisor by_depth;
  int i_tiles, steps_of_part;
  bool accumulate;
};

// A thread loads one element of the filter, as it meets each pixel, and of dout one channel of every
// so many pixels.
template <class T, int n>
struct WeightLoader {
  static constexpr int rows = stage_rows<n>, bs = n * rows / threads;

  const WeightProduct& p;
  const T* inp;   // this thread's element for pixel 0, in the tile's first group; may lie outside
  const T* dout;  // this thread's channel, at pixel 0; null: none
  int h, w;       // of the element for pixel 0
  int groups, bits;  // of the tile: as far as there are any, 0 without an element; and as many as
                     // have room
  T a[rows], b[bs];

  __device__ WeightLoader(const WeightProduct& product, int i, int tile) : p(product) {
    const int element = i + static_cast<int>(threadIdx.x), tap = p.by_depth.divide(element);
    const int r = tap / p.S, first = p.columns.first_group(tile);
    h = r - p.padding, w = tap - r * p.S - p.padding;
    inp = static_cast<const T*>(p.inp) + (int64_t{h} * p.W + w) * (p.columns.groups * p.depth) +
          first * p.depth + (element - tap * p.depth);
    bits = n == wide ? 0 : p.columns.bits;
    groups = r < p.R ? min(p.columns.groups - first, 1 << bits) : 0;
    const Column column(p.columns, tile, b_column());
    dout = column.there ? static_cast<const T*>(p.dout) + column.channel(p.columns) : nullptr;
  }

  // Where the k-th of b lies in the stage, and how many there are.
  __device__ static int b_row(int k) { return threadIdx.x / n + k * (threads / n); }
  __device__ static int b_column() { return threadIdx.x % n; }
  __device__ bool has_b(int k) const { return k < bs >> bits; }

  __device__ void fetch(int step) {
    const int first = step * (rows >> bits);
    by_bits<n>(bits, [&]<int bits> { fetch_a<bits>(first); });
#pragma unroll
    for (int k = 0; k < bs; ++k) {
      const int pixel = first + b_row(k);
      b[k] =
          has_b(k) && dout && pixel < p.pixels ? dout[int64_t{pixel} * p.columns.channels()] : T{};
    }
  }

  template <int bits>
  __device__ void fetch_a(int first) {
    Pixel at(p, first);
    const int channels = p.columns.groups * p.depth;
#pragma unroll
    for (int k = 0; k < rows >> bits; ++k, at.go_on(p)) {
      const int y = at.y * p.stride, x = at.x * p.stride;
      const bool there = first + k < p.pixels &&
                         static_cast<unsigned>(h + y) < static_cast<unsigned>(p.H) &&
                         static_cast<unsigned>(w + x) < static_cast<unsigned>(p.W);
      const T* from = inp + int64_t{(at.image * p.H + y) * p.W + x} * channels;
#pragma unroll
      for (int group = 0; group < 1 << bits; ++group)
        a[(k << bits) + group] = there && group < groups ? from[group * p.depth] : T{};
    }
  }

  __device__ void put(Stage<n>& s) const {
#pragma unroll
    for (int row = 0; row < rows; ++row) s.a[row][threadIdx.x] = to_float(a[row]);
#pragma unroll
    for (int k = 0; k < bs; ++k)
      if (has_b(k)) s.b[b_row(k)][b_column()] = to_float(b[k]);
  }
};

template <int n>
__device__ void store(const WeightProduct& p, int i, int tile, const Sums<n>& sums) {
  const int filter = p.R * p.S * p.depth;
  float* const out = p.out + int64_t{blockIdx.y} * p.columns.channels() * filter;
#pragma unroll
  for (int y = 0; y < Sums<n>::js; ++y) {
    const Column column(p.columns, tile, sums.j_of(y));
    if (!column.there) continue;
    float* const to = out + int64_t{column.channel(p.columns)} * filter;
#pragma unroll
    for (int x = 0; x < 8; ++x)
      if (const int at = i + sums.i_of(x); at < filter)
        to[at] = p.accumulate ? to[at] + sums.at[x][y] : sums.at[x][y];
  }
}

// Block (tile of i and j, part of the pixels).
template <class T, int n>
__global__ void __launch_bounds__(threads, blocks_per_sm)
    conv_general_weight_tile(WeightProduct p) {
  auto& s = shared<Shared<n>>();
  const int i = static_cast<int>(blockIdx.x) % p.i_tiles * m,
            tile = static_cast<int>(blockIdx.x) / p.i_tiles;
  constexpr int rows = stage_rows<n>;
  const int steps = ceil_div(p.pixels, rows >> p.columns.bits);
  const int first = static_cast<int>(blockIdx.y) * p.steps_of_part;
  Sums<n> sums;
  WeightLoader<T, n> loader(p, i, tile);
  multiply(sums, loader, first, min(first + p.steps_of_part, steps), p.columns.bits, s);
  store(p, i, tile, sums);
}

struct Plan {
  Columns columns;
  int i_tiles;
  PixelParts parts;
};
Plan plan(const DeviceProps& props, const ConvShape& s) {
  Plan p{};
  p.columns = columns(s.groups, s.K / s.groups);
  p.i_tiles = ceil_div(s.R * s.S * (s.C / s.groups), m);
  const int rows = (p.columns.n == wide ? stage_rows<wide> : stage_rows<narrow>) >> p.columns.bits;
  const int steps = ceil_div(s.N * s.P() * s.Q(), rows);
  const int places = props.sms * blocks_per_sm;
  p.parts = parts_of_pixels(s, steps, p.i_tiles * p.columns.tiles, places);
  return p;
}

}  // namespace

// ---- The operations -----------------------------------------------------------------------------
size_t conv_general_forward_bytes(const DeviceProps&, const ConvForward& op) {
  return sizeof(float) * 2 * size_t(ceil_div(Geometry::forward(op.shape).pixels, m)) *
         size_t(op.shape.K);
}

void conv_general_forward(const DeviceProps&, const ConvForward& op, cudaStream_t stream) {
  const ConvShape& s = op.shape;
  const Columns k = columns(s.groups, s.K / s.groups);
  const Product p{Geometry::forward(s),
                  op.out,
                  nullptr,
                  op.moments ? static_cast<float*>(op.workspace) : nullptr,
                  op.inp,
                  op.weight,
                  s.C / s.groups,
                  k,
                  Divisor(s.C / s.groups),
                  Divisor(k.tiles)};
  launch_product<false>(p, op.dtype, stream);
  if (op.moments)
    merge_moments({.moments = op.moments,
                   .partial = p.partial,
                   .parts = ceil_div(p.pixels, m),
                   .rows_of_part = m,
                   .rows = p.pixels,
                   .C = s.K},
                  stream);
}

void conv_general_backward_input(const DeviceProps&, const ConvBackwardInput& op,
                                 cudaStream_t stream) {
  const ConvShape& s = op.shape;
  const Columns c = columns(s.groups, s.C / s.groups);
  launch_product<true>({Geometry::backward_input(s), op.dinp, op.add, nullptr, op.dout, op.weight,
                        s.K / s.groups, c, Divisor(s.K / s.groups), Divisor(c.tiles)},
                       op.dtype, stream);
}

size_t conv_general_backward_weight_bytes(const DeviceProps& props, const ConvBackwardWeight& op) {
  const int parts = plan(props, op.shape).parts.count;
  return parts == 1 ? 0
                    : sizeof(float) * size_t(parts) * static_cast<size_t>(op.shape.weight_count());
}

void conv_general_backward_weight(const DeviceProps& props, const ConvBackwardWeight& op,
                                  cudaStream_t stream) {
  const ConvShape& s = op.shape;
  const Plan way = plan(props, s);
  const bool direct = way.parts.count == 1;
  auto* const partial = static_cast<float*>(op.workspace);
  const WeightProduct p{Geometry::forward(s),
                        direct ? op.dweight : partial,
                        op.dout,
                        op.inp,
                        s.C / s.groups,
                        way.columns,
                        Divisor(s.C / s.groups),
                        way.i_tiles,
                        way.parts.steps,
                        direct && op.accumulate};
  const dim3 grid(unsigned(way.i_tiles * way.columns.tiles), unsigned(way.parts.count));
  by_dtype(op.dtype, [&]<class T> {
    if (way.columns.n == wide)
      launch<conv_general_weight_tile<T, wide>>(grid, threads, sizeof(Shared<wide>), stream, p);
    else
      launch<conv_general_weight_tile<T, narrow>>(grid, threads, sizeof(Shared<narrow>), stream, p);
  });
  if (!direct)
    finish_column_sums({.out = op.dweight,
                        .out2 = nullptr,
                        .partial = partial,
                        .blocks = way.parts.count,
                        .C = static_cast<int>(s.weight_count()),
                        .accumulate = op.accumulate},
                       stream);
}

}  // namespace bv::BAREVISION_GPU

// The convolution of a first layer, whose input has 3 channels, in 16 bits on tensor cores (one
// group, K a multiple of 8, filters up to 7 x 7):
//   forward   out[n, p, q, k] = sum over r, s, c of
//                 inp[n, p stride - padding + r, q stride - padding + s, c] weight[k, r, s, c]   =
//             moments: of out as it is rounded                                                   =
//   weight    dweight[k, r, s, c] (+)= sum over n, p, q of dout[n, p, q, k] inp[n, ..., c]
//                                                                      = or += by accumulate
// Nobody wants the gradient of its input.
//
// With 3 channels a pixel is no 16 bytes, but a row of the filter is S * 3 neighbours in memory, at
// a multiple of stride * 3 elements. A tile is up to 256 successive pixels (n, p, q). Its block
// copies all rows of the image that they need to shared memory once, each with its padding, and
// reads mma's operands from there, a pair of elements at a time: the matrix [pixels, R * S * 3] is
// never written out. A filter's row takes an even number of elements in the depth, so that no pair
// crosses to the next: 22 for 7 x 3, 7 rows are 154, 10 steps of 16. What is only there to fill up
// has weight 0, and is masked out of the image, where it could be inf.
//   Images whose rows are multiples of 16 bytes (W % 8 == 0) with an even stride come by cp.async;
//   if a pixel's first element is odd then, filters begin with an element of weight 0. Others are
//   copied by elements; for an odd stride twice, once shifted by an element: every pixel's pairs
//   are aligned in one of the copies.
// A pixel's rows must fit: 32 KB for a tile of 32 or more pixels. With 7 x 7, stride 2 they do for
// images up to 384 wide.
//
// Forward: 4 warps compute 64 pixels x 64 channels each. A block stays for many tiles, those beside
// each other, with its weights in shared memory; the next tile's rows are under way while sums leave
// through shared memory, 16 bytes at a time. Each warp takes its 64 rows' mean and squared
// differences from that; the block merges these into its own, one part for merge_moments.
// Weight: sums over pixels of dout (channels in rows, transposed by ldmatrix) and of the image's
// pairs, of two pixels each, which are woven into pairs of pixels. 4 warps, 32 channels x 80 of
// the depth each, go through a tile by steps of 32 pixels; dout comes three steps ahead. A block's
// sums over all its tiles are one row of the workspace, which finish_column_sums adds up.
// Blocks and their tiles depend on the shape and on the chip alone.
//
// 7 x 7, stride 2, K = 64 at 224 x 224, N = 256: 60 Gflop (66 with what fills up), 77 MB of inp and
// 411 MB of out or dout: 114 us at 4.3 TB/s. Calculated clocks of an SM of an H200 for
// 256 pixels, 95 times at 132 SMs (2100 clocks: 114 us at 1.755 GHz):
//                    forward                            weight
//   mma              1280 * 6.4 / 4             2050    the same
//   shared memory    operands 10 * 4 * 32,      1280    16 * 4 * 28         1790
//                    sums, moments               760    dout, rows           500
//   issue            4 warps * 1500 / 4         1500    16 * 90             1440
// so that memory, mma and shared memory are nearly equal limits; nothing of this is measured.
//
//          registers (sm_75, sm_80, sm_90a)  shared  blocks of an SM (sm_80, sm_90)
// forward  215, 212, 210                  64 KB   2, 2
// weight   160, 165, 167                  49 KB   3, 3
#include "kernels/conv/conv.cuh"
#include "kernels/conv/conv_tiles.cuh"
#include "kernels/cuda/column_sums.cuh"
#include "kernels/cuda/ptx.cuh"

namespace bv::BAREVISION_GPU {
namespace {

constexpr int channels = 3, max_filter = 7;
constexpr int threads = 128, warps = threads / warp_size;
constexpr int tile_k = 64, max_pixels = 256, min_pixels = 32;  // of a tile
constexpr int pairs = 80;  // of the depth, at most: 7 rows of 11, in steps of 8
constexpr int rows_bytes = 32 * 1024;
static_assert(max_filter * (max_filter * channels / 2 + 1) <= pairs);

// ---- The image's rows in shared memory ----------------------------------------------------------
// One below another all images have N * span rows, of which each needs those of its padding, too;
// the pixel (n, p, q) reads rows from n * span + p * stride on. A tile's are its slots.
struct Image {
  const void* inp;  // [N, H, W, 3]
  int H, W, P, Q, R, S, stride, padding, pixels;
  Divisor by_row, by_image, by_span;  // Q, P, span
  int span;
  bool by_chunks;    // cp.async
  int margin;        // elements of a slot before the image's first
  int lead;          // elements of a filter's row before its first
  int filter_pairs;  // of a filter's row
  int slot_words;    // pairs of a slot
  int second_copy;   // words from the first one; 0: there is none
  int tile_pixels;

  __device__ int first_row(int pixel) const {
    const int row = by_row.divide(pixel), n = by_image.divide(row);
    return n * span + (row - n * P) * stride;
  }
  // In bytes, of a pixel's first pair, where the slots begin with `first`.
  __device__ int place(int pixel, int first) const {
    const int q = pixel - by_row.divide(pixel) * Q;
    const int element = margin - padding * channels - lead + q * stride * channels;
    return 4 * ((first_row(pixel) - first) * slot_words + element / 2 + element % 2 * second_copy);
  }
  // From a pixel's first pair to that of the depth's number `pair`.
  __device__ int offset(int pair) const {
    return pair < R * filter_pairs ? 4 * (pair / filter_pairs * slot_words + pair % filter_pairs)
                                   : 0;
  }
  // Of the filter's row, where the element lies in it: -1 if it only fills up.
  __device__ int in_filter(int pair, int element) const {
    const int at = pair % filter_pairs * 2 + element - lead;
    return pair < R * filter_pairs && at >= 0 && at < S * channels ? at : -1;
  }
};

// Elements x of a row of the image, or 0.
__device__ inline uint32_t element_or_0(const uint16_t* row, int x, int row_elements) {
  return x >= 0 && x < row_elements ? row[x] : 0;
}

// Copies the rows for the pixels [pixel, end). Those by cp.async are under way.
__device__ inline void load_rows(const Image& g, int pixel, int end, uint4* slots) {
  const int warp = threadIdx.x / warp_size, lane = threadIdx.x % warp_size;
  const int first = g.first_row(pixel), n_slots = g.first_row(end - 1) + g.R - first;
  const int row_elements = g.W * channels;
  for (int slot = warp; slot < n_slots; slot += warps) {
    const int n = g.by_span.divide(first + slot), h = first + slot - n * g.span - g.padding;
    const bool row_there = h >= 0 && h < g.H;
    const auto* row = static_cast<const uint16_t*>(g.inp) +
                      (row_there ? (int64_t{n} * g.H + h) * row_elements : 0);
    if (g.by_chunks) {
      for (int chunk = lane; chunk < g.slot_words / 4; chunk += warp_size) {
        const int x = chunk * 8 - g.margin;
        const bool there = row_there && x >= 0 && x < row_elements;
        cp_async_16(slots + slot * (g.slot_words / 4) + chunk, row + (there ? x : 0), there);
      }
    } else {
      auto* to = reinterpret_cast<uint32_t*>(slots) + slot * g.slot_words;
      for (int word = lane; word < g.slot_words; word += warp_size) {
        const int x = word * 2 - g.margin, there = row_there ? row_elements : 0;
        const uint32_t middle = element_or_0(row, x + 1, there);
        to[word] = element_or_0(row, x, there) | middle << 16;
        if (g.second_copy)
          to[g.second_copy + word] = middle | element_or_0(row, x + 2, there) << 16;
      }
    }
  }
}

__device__ inline uint32_t word_at(const uint4* slots, int bytes) {
  return *static_cast<const uint32_t*>(at_byte(slots, bytes));
}

// ---- Forward ------------------------------------------------------------------------------------
struct Forward {
  Image image;
  void* out;           // [pixels, K]
  const void* weight;  // [K, R, S, 3]
  float* partial;      // [blocks, 2, K]: mean and M2 of each block's pixels; or null
  int K, block_pixels;
};

constexpr int warp_pixels = max_pixels / warps;
constexpr int weight_chunks =
    pairs / 4 + 1;  // odd: the rows that ldmatrix reads lie in other banks

struct ForwardShared {
  alignas(128) uint4 rows[rows_bytes / 16];
  uint4 weight[tile_k * weight_chunks];  // [tile_k, depth]
  uint4 out[warps][16 * tile_k / 8];     // 16 pixels of each warp
  uint2 pair[pairs];                     // of the depth: its offset; which elements aren't filling
  float mean[warps][tile_k], m2[warps][tile_k];
};

__device__ inline void load_weight(const Forward& p, int k, ForwardShared& s) {
  const Image& g = p.image;
  const int warp = threadIdx.x / warp_size, lane = threadIdx.x % warp_size;
  const int filter = g.R * g.S * channels;
  for (int pair = lane; pair < pairs; pair += warp_size) {
    const int low = g.in_filter(pair, 0), high = g.in_filter(pair, 1);
    if (warp == 0)
      s.pair[pair] = {static_cast<unsigned>(g.offset(pair)),
                      (low >= 0 ? 0xFFFFu : 0) | (high >= 0 ? 0xFFFF0000u : 0)};
    const auto* from =
        static_cast<const uint16_t*>(p.weight) + pair / g.filter_pairs * g.S * channels;
    auto* to = reinterpret_cast<uint32_t*>(s.weight) + pair;
#pragma unroll 8
    for (int row = warp; row < tile_k; row += warps) {
      const auto* of_row = from + int64_t{k + row} * filter;
      const bool there = k + row < p.K;
      to[row * weight_chunks * 4] =
          (there && low >= 0 ? of_row[low] : 0u) | (there && high >= 0 ? of_row[high] : 0u) << 16;
    }
  }
}

// A warp's 64 pixels x 64 channels, as mma's fragments: a lane holds of the 16x8 sums [i][j] the
// pixels i * 16 + lane/4 and the eighth behind, channels j * 8 + lane%4*2 and the next.
template <class T>
struct ForwardTile {
  static constexpr int ms = warp_pixels / 16, ns = tile_k / 8;

  float sum[ms][ns][4] = {};

  __device__ void add(const Image& g, int pixel, int end, const ForwardShared& s) {
    const int warp = threadIdx.x / warp_size, lane = threadIdx.x % warp_size;
    const int first = g.first_row(pixel);
    int place[ms][2];
#pragma unroll
    for (int i = 0; i < ms; ++i)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        place[i][half] =
            g.place(min(pixel + warp * warp_pixels + i * 16 + half * 8 + lane / 4, end - 1), first);
    const uint4* weight = s.weight + (lane / 16 * 8 + lane % 8) * weight_chunks + lane / 8 % 2;
    const int steps = ceil_div(g.R * g.filter_pairs, 8);
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
      const uint2 low = s.pair[step * 8 + lane % 4], high = s.pair[step * 8 + 4 + lane % 4];
      uint32_t a[ms][4];
#pragma unroll
      for (int i = 0; i < ms; ++i)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          a[i][half] = word_at(s.rows, place[i][half] + static_cast<int>(low.x)) & low.y;
          a[i][half + 2] = word_at(s.rows, place[i][half] + static_cast<int>(high.x)) & high.y;
        }
#pragma unroll
      for (int j = 0; j < ns; j += 2) {
        uint32_t b[4];
        ldmatrix_x4(b, weight + j * 8 * weight_chunks + step * 2);
#pragma unroll
        for (int i = 0; i < ms; ++i) {
          mma_m16n8k16<T>(sum[i][j], a[i], b[0], b[1]);
          mma_m16n8k16<T>(sum[i][j + 1], a[i], b[2], b[3]);
        }
      }
    }
  }

  // Of the warp's pixels, from `pixel` on, `count` are there. The sums become what was stored.
  __device__ void store(const Forward& p, int pixel, int count, int k, uint4* tile) {
    const int lane = threadIdx.x % warp_size;
    const bool there = k + lane % 8 * 8 < p.K;
    T* const out = static_cast<T*>(p.out) + (int64_t{pixel} + lane / 8) * p.K + k + lane % 8 * 8;
#pragma unroll
    for (int i = 0; i < ms; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half)
#pragma unroll
        for (int j = 0; j < ns; ++j) {
          float &x = sum[i][j][2 * half], &y = sum[i][j][2 * half + 1];
          const Elements<T, 2> pair{from_float<T>(x), from_float<T>(y)};
          *static_cast<Elements<T, 2>*>(
              at_byte(tile, swizzled<8>(half * 8 + lane / 4, j) + lane % 4 * 4)) = pair;
          x = to_float(pair.at[0]), y = to_float(pair.at[1]);
        }
      __syncwarp();
#pragma unroll
      for (int row = 0; row < 16; row += 4)
        if (there && i * 16 + row + lane / 8 < count)
          st_global(
              reinterpret_cast<uint4*>(out + int64_t{i * 16 + row} * p.K),
              *static_cast<const uint4*>(at_byte(tile, swizzled<8>(row + lane / 8, lane % 8))));
      __syncwarp();
    }
  }

  // Mean and squared differences from it, of each channel of the first `count` pixels.
  __device__ void moments(int count, float* mean, float* m2) {
    const int lane = threadIdx.x % warp_size;
    using Rows = RowSums<4, 2 * ns>;
    static_assert(Rows::count == 2);
    // Of a lane's channels, numbered as in `of`, where the number x lies among all.
    const auto channel = [&](int x) { return x / 2 * 8 + lane % 4 * 2; };
    float of[2 * ns];
    const auto add_rows = [&](auto f) {
#pragma unroll
      for (int x = 0; x < 2 * ns; ++x) of[x] = 0;
#pragma unroll
      for (int i = 0; i < ms; ++i)
#pragma unroll
        for (int half = 0; half < 2; ++half)
          if (i * 16 + half * 8 + lane / 4 < count)
#pragma unroll
            for (int x = 0; x < 2 * ns; ++x) of[x] += f(sum[i][x / 2][2 * half + x % 2], x);
    };
    add_rows([](float value, int) { return value; });
    int first = channel(Rows::add(of));
    const float share = 1.f / static_cast<float>(count);
    bv::BAREVISION_GPU::store(mean + first, Elements<float, 2>{of[0] * share, of[1] * share});
    __syncwarp();
    float center[2 * ns];
#pragma unroll
    for (int x = 0; x < 2 * ns; x += 2) {
      const auto both = load<2>(mean + channel(x));
      center[x] = both.at[0], center[x + 1] = both.at[1];
    }
    add_rows([&](float value, int x) { return (value - center[x]) * (value - center[x]); });
    first = channel(Rows::add(of));
    bv::BAREVISION_GPU::store(m2 + first, Elements<float, 2>{of[0], of[1]});
  }
};

// Block (tiles beside each other, 64 of K).
template <class T>
__global__ void __launch_bounds__(threads, 2) conv_stem_forward_tiles(Forward p) {
  auto& s = shared<ForwardShared>();
  const Image& g = p.image;
  const int k = blockIdx.y * tile_k, begin = blockIdx.x * p.block_pixels;
  const int block_end = min(p.block_pixels, g.pixels - begin) + begin;
  const int warp = threadIdx.x / warp_size, thread = static_cast<int>(threadIdx.x);
  const auto end_of = [&](int pixel) { return min(g.tile_pixels, block_end - pixel) + pixel; };
  load_rows(g, begin, end_of(begin), s.rows);
  cp_async_commit();
  load_weight(p, k, s);
  Moments of_block{0, 0, 0};  // of channel k + thread
  for (int pixel = begin; pixel < block_end; pixel += g.tile_pixels) {
    const int end = end_of(pixel), left = end - pixel;
    cp_async_wait<0>();
    __syncthreads();
    ForwardTile<T> tile;
    tile.add(g, pixel, end, s);
    __syncthreads();  // nobody reads the rows any more
    if (end < block_end) load_rows(g, end, end_of(end), s.rows);
    cp_async_commit();
    const int count = min(left - warp * warp_pixels, warp_pixels);
    if (count > 0) {
      tile.store(p, pixel + warp * warp_pixels, count, k, s.out[warp]);
      if (p.partial) tile.moments(count, s.mean[warp], s.m2[warp]);
    }
    if (!p.partial) continue;
    __syncthreads();
    if (threadIdx.x < tile_k)
#pragma unroll
      for (int w = 0; w < warps; ++w)
        if (const int rows = min(left - w * warp_pixels, warp_pixels); rows > 0)
          merge(of_block, {static_cast<float>(rows), s.mean[w][thread], s.m2[w][thread]});
  }
  cp_async_wait<0>();
  if (p.partial && thread < tile_k && k + thread < p.K) {
    float* to = p.partial + int64_t{blockIdx.x} * 2 * p.K + k + thread;
    to[0] = of_block.mean;
    to[p.K] = of_block.m2;
  }
}

// ---- The weight's gradient ----------------------------------------------------------------------
struct Weight {
  Image image;
  float* partial;    // [blocks, K, R, S, 3]
  const void* dout;  // [pixels, K]
  int K, block_pixels;
};

constexpr int stages = 4, step_pixels = 32;

struct WeightShared {
  alignas(128) uint4 rows[rows_bytes / 16];
  uint4 dout[stages][step_pixels * tile_k / 8];  // [step_pixels, tile_k]
  int place[max_pixels];                         // of each pixel of the tile
};

__device__ inline void load_dout(const Weight& p, int k, int pixel, int end, uint4* to) {
  constexpr int chunks = tile_k / 8, rows_at_once = threads / chunks;
  const int thread = static_cast<int>(threadIdx.x), chunk = thread % chunks, row = thread / chunks;
  const auto* dout = static_cast<const uint4*>(p.dout);
#pragma unroll
  for (int i = 0; i < step_pixels; i += rows_at_once) {
    const bool there = k + chunk * 8 < p.K && pixel + row + i < end;
    cp_async_16(at_byte(to, swizzled<chunks>(row + i, chunk)),
                dout + (there ? (int64_t{pixel} + row + i) * (p.K / 8) + k / 8 + chunk : 0), there);
  }
}

// A warp's 32 channels x 40 pairs of the depth: a lane holds of the 16x8 sums [i][j] the channels
// i * 16 + lane/4 and the eighth behind; of the pairs j / 2 * 8 + lane%4*2 and the next the first
// elements for an even j, the second ones for an odd one.
template <class T>
struct WeightTile {
  static constexpr int warp_pairs = pairs / 2, ms = tile_k / 2 / 16, ns = warp_pairs / 4;

  float sum[ms][ns][4] = {};
  int offset[ns / 2];  // of this lane's pairs

  __device__ static int row() { return threadIdx.x / warp_size % 2 * (tile_k / 2); }
  __device__ static int column() { return threadIdx.x / warp_size / 2 * warp_pairs; }

  __device__ explicit WeightTile(const Image& g) {
#pragma unroll
    for (int j = 0; j < ns / 2; ++j)
      offset[j] = g.offset(column() + j * 8 + static_cast<int>(threadIdx.x) % warp_size / 4);
  }

  __device__ void add(const uint4* rows, const uint4* dout, const int* place) {
    const int lane = threadIdx.x % warp_size;
    const int of_lane = swizzled<8>(lane / 16 * 8 + lane % 8, row() / 8 + lane / 8 % 2);
#pragma unroll
    for (int pixel = 0; pixel < step_pixels; pixel += 16) {
      uint32_t a[ms][4];
#pragma unroll
      for (int i = 0; i < ms; ++i)
        ldmatrix_x4_trans(a[i], at_byte(dout, (of_lane ^ i * 32) + pixel * tile_k * 2));
      const auto low = load<2>(place + pixel + lane % 4 * 2),
                 high = load<2>(place + pixel + 8 + lane % 4 * 2);
#pragma unroll
      for (int j = 0; j < ns; j += 2) {
        uint32_t first[2], second[2];  // elements of the pairs, of neighbouring pixels
        const auto weave = [&](int half, const Elements<int, 2>& of) {
          const uint32_t x = word_at(rows, of.at[0] + offset[j / 2]),
                         y = word_at(rows, of.at[1] + offset[j / 2]);
          first[half] = (x & 0xFFFF) | y << 16;
          second[half] = x >> 16 | (y & 0xFFFF0000);
        };
        weave(0, low), weave(1, high);
#pragma unroll
        for (int i = 0; i < ms; ++i) {
          mma_m16n8k16<T>(sum[i][j], a[i], first[0], first[1]);
          mma_m16n8k16<T>(sum[i][j + 1], a[i], second[0], second[1]);
        }
      }
    }
  }

  __device__ void store(const Weight& p, int k) const {
    const Image& g = p.image;
    const int lane = threadIdx.x % warp_size, filter = g.R * g.S * channels;
    float* const to = p.partial + (int64_t{blockIdx.x} * p.K + k + row() + lane / 4) * filter;
#pragma unroll
    for (int j = 0; j < ns; ++j)
#pragma unroll
      for (int next = 0; next < 2; ++next) {
        const int pair = column() + j / 2 * 8 + lane % 4 * 2 + next, at = g.in_filter(pair, j % 2);
        if (at < 0) continue;
        const int element = pair / g.filter_pairs * g.S * channels + at;
#pragma unroll
        for (int i = 0; i < ms; ++i)
#pragma unroll
          for (int half = 0; half < 2; ++half)
            if (const int channel = i * 16 + half * 8; k + row() + lane / 4 + channel < p.K)
              to[channel * filter + element] = sum[i][j][2 * half + next];
      }
  }
};

// Block (tiles beside each other, 64 of K).
template <class T>
__global__ void __launch_bounds__(threads, 3) conv_stem_weight_tiles(Weight p) {
  auto& s = shared<WeightShared>();
  const Image& g = p.image;
  const int k = blockIdx.y * tile_k, begin = blockIdx.x * p.block_pixels;
  const int block_end = min(p.block_pixels, g.pixels - begin) + begin;
  const int steps = ceil_div(block_end - begin, step_pixels);
  const auto load = [&](int step) {
    if (step < steps) load_dout(p, k, begin + step * step_pixels, block_end, s.dout[step % stages]);
    cp_async_commit();
  };
#pragma unroll
  for (int i = 0; i < stages - 1; ++i) load(i);
  WeightTile<T> tile(g);
  const int steps_of_tile = g.tile_pixels / step_pixels;
  for (int step = 0, in_tile = 0; step < steps; ++step, ++in_tile) {
    if (in_tile == steps_of_tile) in_tile = 0;
    if (in_tile == 0) {
      __syncthreads();  // nobody reads the rows any more
      const int pixel = begin + step * step_pixels;
      const int end = min(g.tile_pixels, block_end - pixel) + pixel, first = g.first_row(pixel);
      load_rows(g, pixel, end, s.rows);
      cp_async_commit();
      for (int i = threadIdx.x; i < g.tile_pixels; i += threads)
        s.place[i] = g.place(min(pixel + i, end - 1), first);
      cp_async_wait<0>();
    }
    cp_async_wait<stages - 2>();
    __syncthreads();  // all have this stage, and none reads the one that comes next any more
    load(step + stages - 1);
    tile.add(s.rows, s.dout[step % stages], s.place + in_tile * step_pixels);
  }
  cp_async_wait<0>();
  tile.store(p, k);
}

// ---- Sizes --------------------------------------------------------------------------------------
bool by_chunks(const ConvShape& s) { return s.W % 8 == 0 && s.stride % 2 == 0; }

// Of a slot, elements before the image's first; of a filter's row, those before its first.
int margin(const ConvShape& s) {
  const int elements = s.padding * channels;
  return by_chunks(s) ? ceil_div(elements, 8) * 8 : elements;
}
int lead(const ConvShape& s) { return (margin(s) - s.padding * channels) % 2; }
int filter_pairs(const ConvShape& s) { return ceil_div(s.S * channels + lead(s), 2); }
int64_t slot_words(const ConvShape& s) {
  const int64_t last = int64_t{margin(s)} - s.padding * channels - lead(s) +
                       (int64_t{s.Q()} - 1) * s.stride * channels;  // pixel's first element
  const int64_t words = last / 2 + filter_pairs(s);
  return by_chunks(s) ? ceil_div(words, int64_t{4}) * 4 : words;
}

// The rows that a tile needs at most: from one row of pixels to the next `stride` more, from one
// image to the next R.
int64_t max_slots(const ConvShape& s, int pixels) {
  const int64_t rows = std::min((pixels - 2) / s.Q() + 2, s.N * s.P());
  const int64_t images = std::min(ceil_div(rows - 1, int64_t{s.P()}), int64_t{s.N} - 1);
  return (rows - 1) * s.stride + s.R + images * std::max(0, s.R - s.stride);
}

// As many as their rows have room for; 0: too few.
int tile_pixels(const ConvShape& s) {
  for (int pixels = max_pixels; pixels >= min_pixels; pixels /= 2)
    if (max_slots(s, pixels) * slot_words(s) * (s.stride % 2 ? 2 : 1) * 4 <= rows_bytes)
      return pixels;
  return 0;
}

int span(const ConvShape& s) { return (s.P() - 1) * s.stride + s.R; }
int pixels(const ConvShape& s) { return s.N * s.P() * s.Q(); }

Image image(const ConvShape& s, const void* inp) {
  const int tile = tile_pixels(s), words = static_cast<int>(slot_words(s));
  return {.inp = inp,
          .H = s.H,
          .W = s.W,
          .P = s.P(),
          .Q = s.Q(),
          .R = s.R,
          .S = s.S,
          .stride = s.stride,
          .padding = s.padding,
          .pixels = pixels(s),
          .by_row = Divisor(s.Q()),
          .by_image = Divisor(s.P()),
          .by_span = Divisor(span(s)),
          .span = span(s),
          .by_chunks = by_chunks(s),
          .margin = margin(s),
          .lead = lead(s),
          .filter_pairs = filter_pairs(s),
          .slot_words = words,
          .second_copy = s.stride % 2 ? static_cast<int>(max_slots(s, tile)) * words : 0,
          .tile_pixels = tile};
}

// Each block's part of the pixels: whole tiles, for as many blocks as are on the chip at a time.
struct Parts {
  int pixels, blocks, columns;
};
Parts parts(const DeviceProps& props, const ConvShape& s, int blocks_per_sm) {
  const int columns = ceil_div(s.K, tile_k), tile = tile_pixels(s);
  const int tiles = ceil_div(pixels(s), tile);
  const int blocks = std::max(1, props.sms * blocks_per_sm / columns);
  const int tiles_of_block = ceil_div(tiles, blocks);
  return {tiles_of_block * tile, ceil_div(tiles, tiles_of_block), columns};
}
Parts forward_parts(const DeviceProps& props, const ConvShape& s) { return parts(props, s, 2); }
Parts weight_parts(const DeviceProps& props, const ConvShape& s) { return parts(props, s, 3); }

}  // namespace

bool conv_stem_takes(const ConvShape& s, DType dtype) {
  constexpr double most = 1 << 30;
  return dtype != DType::fp32 && s.groups == 1 && s.C == channels && s.K % 8 == 0 &&
         s.R <= max_filter && s.S <= max_filter && s.padding < 1 << 15 && s.stride < 1 << 15 &&
         double(s.N) * s.P() * s.Q() < most && double(s.N) * span(s) < most && tile_pixels(s) > 0;
}

size_t conv_stem_forward_bytes(const DeviceProps& props, const ConvForward& op) {
  return sizeof(float) * 2 * forward_parts(props, op.shape).blocks * op.shape.K;
}

void conv_stem_forward(const DeviceProps& props, const ConvForward& op, cudaStream_t stream) {
  const ConvShape& s = op.shape;
  const Parts part = forward_parts(props, s);
  auto* partial = op.moments ? static_cast<float*>(op.workspace) : nullptr;
  const Forward forward{.image = image(s, op.inp),
                        .out = op.out,
                        .weight = op.weight,
                        .partial = partial,
                        .K = s.K,
                        .block_pixels = part.pixels};
  by_dtype(op.dtype, [&]<class T>() {
    if constexpr (!std::is_same_v<T, float>)
      launch<conv_stem_forward_tiles<T>>(dim3(part.blocks, part.columns), threads,
                                         sizeof(ForwardShared), stream, forward);
  });
  if (op.moments)
    merge_moments({.moments = op.moments,
                   .partial = partial,
                   .parts = part.blocks,
                   .rows_of_part = part.pixels,
                   .rows = pixels(s),
                   .C = s.K},
                  stream);
}

size_t conv_stem_backward_weight_bytes(const DeviceProps& props, const ConvBackwardWeight& op) {
  return sizeof(float) * weight_parts(props, op.shape).blocks *
         static_cast<size_t>(op.shape.weight_count());
}

void conv_stem_backward_weight(const DeviceProps& props, const ConvBackwardWeight& op,
                               cudaStream_t stream) {
  const ConvShape& s = op.shape;
  const Parts part = weight_parts(props, s);
  auto* partial = static_cast<float*>(op.workspace);
  const Weight weight{.image = image(s, op.inp),
                      .partial = partial,
                      .dout = op.dout,
                      .K = s.K,
                      .block_pixels = part.pixels};
  by_dtype(op.dtype, [&]<class T>() {
    if constexpr (!std::is_same_v<T, float>)
      launch<conv_stem_weight_tiles<T>>(dim3(part.blocks, part.columns), threads,
                                        sizeof(WeightShared), stream, weight);
  });
  finish_column_sums({.out = op.dweight,
                      .out2 = nullptr,
                      .partial = partial,
                      .blocks = part.blocks,
                      .C = static_cast<int>(s.weight_count()),
                      .accumulate = op.accumulate},
                     stream);
}

}  // namespace bv::BAREVISION_GPU

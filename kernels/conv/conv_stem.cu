// The convolution of a first layer, whose input has 3 channels, in 16 bits on tensor cores (one
// group, K a multiple of 8, filters up to 7 x 7). A first layer needs no input gradient.
//   forward   out[n, p, q, k] = sum over r, s, c of
//                 inp[n, p stride - padding + r, q stride - padding + s, c] weight[k, r, s, c]   =
//             moments of out's rounded values                                                   =
//   weight    dweight[k, r, s, c] = or += (accumulate) sum over n, p, q of
//                 dout[n, p, q, k] inp[...]
// gemm_k is R * S * 3. 3 channels are too few for a 16-byte access, but a row of the filter covers
// S * 3 neighbours in memory. So a block copies the image rows that a tile of up to 256 successive
// pixels needs to shared memory, padding included, and reads mma's operands from there as pairs of
// elements; the matrix [pixels, R * S * 3] is never written out. A filter's row is padded with 0 to
// an even number of elements, so that no pair crosses rows; the image's elements there may be inf
// and are masked out. If the stride is even and W % 8 == 0 (rows of a multiple of 16 bytes),
// cp.async copies the rows. Otherwise they are copied element by element; for an odd stride, a
// second copy is shifted by one element, so that every pair is aligned in one of them. The shape
// and the GPU determine how many tiles a block processes. In forward, each of 4 warps computes 64
// pixels x 64 channels with the weights in shared memory, and the next tile's rows are in flight
// while the sums are stored; the last block to finish merges the moments. In the weight gradient,
// each of 4 warps sums 32 channels x 80 of gemm_k over the pixels; dout is loaded 3 steps ahead.
// finish_column_sums adds up the blocks' sums. Limited nearly equally by memory, mma and shared
// memory. Registers: tests/kernels/resources.txt.
#include <algorithm>

#include "kernels/conv/conv.cuh"
#include "kernels/cuda/column_sums.cuh"
#include "kernels/gemm/conv_tiles.cuh"

namespace bv::BAREVISION_GPU {
namespace {

constexpr int channels = 3, max_filter = 7;
constexpr int threads = 128, warps = threads / warp_size;
constexpr int tile_k = 64, max_pixels = 256, min_pixels = 32;  // K and pixels of a tile
constexpr int pairs = 80;  // of gemm_k, at most: 7 rows of 11, in steps of 8
constexpr int rows_bytes = 32 * 1024;
static_assert(max_filter * (max_filter * channels / 2 + 1) <= pairs);

// ---- The image's rows in shared memory ----------------------------------------------------------
// The rows of all images, padding included, are numbered from 0 to N * span - 1; pixel (n, p, q)
// reads rows from n * span + p * stride on. A tile's rows are stored in its slots.
struct Image {
  const void* inp;  // [N, H, W, 3]
  int H, W, P, Q, R, S, stride, padding, pixels;
  Divisor by_row, by_image, by_span;  // Q, P, span
  int span;
  bool by_chunks;    // by cp.async
  int margin;        // elements of a slot before the image's first
  int lead;          // elements of a filter's row before its first
  int filter_pairs;  // per row of the filter
  int slot_words;    // pairs per slot
  int second_copy;   // words from the first copy to the shifted one; 0 without one
  int tile_pixels;   // pixels per tile, as many as fit with their rows; 0: too few fit

  __device__ int first_row(int pixel) const {
    const int row = by_row.divide(pixel), n = by_image.divide(row);
    return n * span + (row - n * P) * stride;
  }
  // Byte offset of a pixel's first pair; slot 0 holds row `first`.
  __device__ int place(int pixel, int first) const {
    const int q = pixel - by_row.divide(pixel) * Q;
    const int element = margin - padding * channels - lead + q * stride * channels;
    return 4 * ((first_row(pixel) - first) * slot_words + element / 2 + element % 2 * second_copy);
  }
  // Bytes from a pixel's first pair to pair `pair` of gemm_k.
  __device__ int offset(int pair) const {
    return pair < R * filter_pairs ? 4 * (pair / filter_pairs * slot_words + pair % filter_pairs)
                                   : 0;
  }
  // An element's place in its row of the filter; -1 if it is padding.
  __device__ int in_filter(int pair, int element) const {
    const int at = pair % filter_pairs * 2 + element - lead;
    return pair < R * filter_pairs && at >= 0 && at < S * channels ? at : -1;
  }
};

__device__ inline uint32_t element_or_0(const uint16_t* row, int x, int row_elements) {
  return x >= 0 && x < row_elements ? row[x] : 0;
}

// Copies the rows that pixels [pixel, end) read. cp.async may still be in flight on return.
__device__ inline void load_rows(const Image& g, int pixel, int end, uint4* slots) {
  const int warp = threadIdx.x / warp_size, lane = threadIdx.x % warp_size;
  const int first = g.first_row(pixel), n_slots = g.first_row(end - 1) + g.R - first;
  const int row_elements = g.W * channels;
  for (int slot = warp; slot < n_slots; slot += warps) {
    const int n = g.by_span.divide(first + slot), h = first + slot - n * g.span - g.padding;
    const bool row_in_bounds = h >= 0 && h < g.H;
    const auto* row = static_cast<const uint16_t*>(g.inp) +
                      (row_in_bounds ? (int64_t{n} * g.H + h) * row_elements : 0);
    if (g.by_chunks) {
      for (int chunk = lane; chunk < g.slot_words / 4; chunk += warp_size) {
        const int x = chunk * 8 - g.margin;
        const bool in_bounds = row_in_bounds && x >= 0 && x < row_elements;
        cp_async_16(slots + slot * (g.slot_words / 4) + chunk, row + (in_bounds ? x : 0),
                    in_bounds);
      }
    } else {
      auto* to = reinterpret_cast<uint32_t*>(slots) + slot * g.slot_words;
      for (int word = lane; word < g.slot_words; word += warp_size) {
        const int x = word * 2 - g.margin, elements = row_in_bounds ? row_elements : 0;
        const uint32_t middle = element_or_0(row, x + 1, elements);
        to[word] = element_or_0(row, x, elements) | middle << 16;
        if (g.second_copy)
          to[g.second_copy + word] = middle | element_or_0(row, x + 2, elements) << 16;
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
  int K, block_pixels;
  MergeMoments moments;  // of each block's pixels; moments.moments null: not wanted
  RowParts parts;
};
using Merge = LastBlock<MergeMoments, threads, tile_k, 4>;

constexpr int warp_pixels = max_pixels / warps;
constexpr int weight_chunks = pairs / 4 + 1;  // odd: ldmatrix reads rows in different banks

struct ForwardShared {
  union {
    alignas(128) uint4 rows[rows_bytes / 16];
    Merge::Shared merge;
  };
  uint4 weight[tile_k * weight_chunks];  // [tile_k, gemm_k]
  uint4 out[warps][16 * tile_k / 8];     // 16 pixels per warp
  uint2 pair[pairs];                     // of gemm_k: byte offset; mask that clears padding
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
      const bool in_bounds = k + row < p.K;
      to[row * weight_chunks * 4] = (in_bounds && low >= 0 ? of_row[low] : 0u) |
                                    (in_bounds && high >= 0 ? of_row[high] : 0u) << 16;
    }
  }
}

// A warp's 64 pixels x 64 channels as mma fragments: of each 16x8 fragment [i][j], a lane holds
// pixels i * 16 + lane/4 and i * 16 + lane/4 + 8, channels j * 8 + lane%4*2 and the next.
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

  // Stores the warp's pixels from `pixel` on, of which `count` are in bounds. Rounds the sums in
  // place to the stored values.
  __device__ void store(const Forward& p, int pixel, int count, int k, uint4* tile) {
    const int lane = threadIdx.x % warp_size;
    const bool in_bounds = k + lane % 8 * 8 < p.K;
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
              at_byte(tile, swizzled_byte<8>(half * 8 + lane / 4, j) + lane % 4 * 4)) = pair;
          x = to_float(pair.at[0]), y = to_float(pair.at[1]);
        }
      __syncwarp();
#pragma unroll
      for (int row = 0; row < 16; row += 4)
        if (in_bounds && i * 16 + row + lane / 8 < count)
          st_global(reinterpret_cast<uint4*>(out + int64_t{i * 16 + row} * p.K),
                    *static_cast<const uint4*>(
                        at_byte(tile, swizzled_byte<8>(row + lane / 8, lane % 8))));
      __syncwarp();
    }
  }

  // Mean and M2 of each channel over the first `count` pixels.
  __device__ void moments(int count, float* mean, float* m2) {
    const int lane = threadIdx.x % warp_size;
    using Rows = RowSums<4, 2 * ns>;
    static_assert(Rows::count == 2);
    // The channel of element x of `of`.
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

// Block (neighbouring tiles, 64 of K).
template <class T>
__global__ void __launch_bounds__(threads, 2) conv_stem_forward_tiles(Forward p) {
  await_kernel_ahead();
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
    __syncthreads();  // all warps are done with the rows
    if (end < block_end) load_rows(g, end, end_of(end), s.rows);
    cp_async_commit();
    const int count = min(left - warp * warp_pixels, warp_pixels);
    if (count > 0) {
      tile.store(p, pixel + warp * warp_pixels, count, k, s.out[warp]);
      if (p.moments.moments) tile.moments(count, s.mean[warp], s.m2[warp]);
    }
    if (!p.moments.moments) continue;
    __syncthreads();
    if (threadIdx.x < tile_k)
#pragma unroll
      for (int w = 0; w < warps; ++w)
        if (const int rows = min(left - w * warp_pixels, warp_pixels); rows > 0)
          merge(of_block, {static_cast<float>(rows), s.mean[w][thread], s.m2[w][thread]});
  }
  cp_async_wait<0>();
  if (!p.moments.moments) return;
  if (thread < tile_k && k + thread < p.K)
    p.moments.save(p.parts.partial + int64_t{blockIdx.x} * 2 * p.K + k + thread, of_block);
  Merge::run(
      p.moments, p.parts, static_cast<int>(blockIdx.x), static_cast<int>(blockIdx.y),
      [&](int c) { return k + c < p.K ? k + c : -1; }, s.merge);
}

// ---- Weight gradient ----------------------------------------------------------------------------
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
    const bool in_bounds = k + chunk * 8 < p.K && pixel + row + i < end;
    cp_async_16(at_byte(to, swizzled_byte<chunks>(row + i, chunk)),
                dout + (in_bounds ? (int64_t{pixel} + row + i) * (p.K / 8) + k / 8 + chunk : 0),
                in_bounds);
  }
}

// A warp's 32 channels x 40 pairs of gemm_k: of each 16x8 fragment [i][j], a lane holds channels
// i * 16 + lane/4 and i * 16 + lane/4 + 8; of pairs j / 2 * 8 + lane%4*2 and the next, it holds the
// first elements if j is even, else the second.
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
    const int of_lane = swizzled_byte<8>(lane / 16 * 8 + lane % 8, row() / 8 + lane / 8 % 2);
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
        uint32_t first[2], second[2];  // elements of the pairs, for two neighbouring pixels
        const auto interleave = [&](int half, const Elements<int, 2>& of) {
          const uint32_t x = word_at(rows, of.at[0] + offset[j / 2]),
                         y = word_at(rows, of.at[1] + offset[j / 2]);
          first[half] = (x & 0xFFFF) | y << 16;
          second[half] = x >> 16 | (y & 0xFFFF0000);
        };
        interleave(0, low), interleave(1, high);
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

// Block (neighbouring tiles, 64 of K).
template <class T>
__global__ void __launch_bounds__(threads, 3) conv_stem_weight_tiles(Weight p) {
  await_kernel_ahead();
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
      __syncthreads();  // all warps are done with the rows
      const int pixel = begin + step * step_pixels;
      const int end = min(g.tile_pixels, block_end - pixel) + pixel, first = g.first_row(pixel);
      load_rows(g, pixel, end, s.rows);
      cp_async_commit();
      for (int i = threadIdx.x; i < g.tile_pixels; i += threads)
        s.place[i] = g.place(min(pixel + i, end - 1), first);
      cp_async_wait<0>();
    }
    cp_async_wait<stages - 2>();
    __syncthreads();  // this stage has arrived; all warps are done with the one loaded next
    load(step + stages - 1);
    tile.add(s.rows, s.dout[step % stages], s.place + in_tile * step_pixels);
  }
  cp_async_wait<0>();
  tile.store(p, k);
}

// ---- Sizes --------------------------------------------------------------------------------------
// The most rows that a tile needs: R, plus stride per further row of pixels, plus R - stride, if
// positive, per further image.
int64_t max_slots(const ConvShape& s, int pixels) {
  const int64_t rows = std::min((pixels - 2) / s.Q() + 2, s.N * s.P());
  const int64_t images = std::min(ceil_div(rows - 1, int64_t{s.P()}), int64_t{s.N} - 1);
  return (rows - 1) * s.stride + s.R + images * std::max(0, s.R - s.stride);
}

int span(const ConvShape& s) { return (s.P() - 1) * s.stride + s.R; }

Image image(const ConvShape& s, const void* inp) {
  const bool by_chunks = s.W % 8 == 0 && s.stride % 2 == 0, two_copies = s.stride % 2;
  const int padding = s.padding * channels;
  const int margin = by_chunks ? ceil_div(padding, 8) * 8 : padding, lead = (margin - padding) % 2;
  const int filter_pairs = ceil_div(s.S * channels + lead, 2);
  const int64_t last_pixel = margin - padding - lead + (int64_t{s.Q()} - 1) * s.stride * channels;
  int64_t words = last_pixel / 2 + filter_pairs;
  if (by_chunks) words = ceil_div(words, int64_t{4}) * 4;
  int tile = max_pixels;
  while (tile && max_slots(s, tile) * words * (two_copies ? 2 : 1) * 4 > rows_bytes)
    tile = tile > min_pixels ? tile / 2 : 0;
  return {.inp = inp,
          .H = s.H,
          .W = s.W,
          .P = s.P(),
          .Q = s.Q(),
          .R = s.R,
          .S = s.S,
          .stride = s.stride,
          .padding = s.padding,
          .pixels = s.N * s.P() * s.Q(),
          .by_row = Divisor(s.Q()),
          .by_image = Divisor(s.P()),
          .by_span = Divisor(span(s)),
          .span = span(s),
          .by_chunks = by_chunks,
          .margin = margin,
          .lead = lead,
          .filter_pairs = filter_pairs,
          .slot_words = static_cast<int>(words),
          .second_copy = two_copies ? static_cast<int>(max_slots(s, tile) * words) : 0,
          .tile_pixels = tile};
}

// How pixels are divided among the blocks: in whole tiles, so that all blocks run in one wave.
struct Parts {
  int pixels, blocks, columns;  // pixels per block
};
Parts parts(const DeviceProps& props, const ConvShape& s, int blocks_per_sm) {
  const Image g = image(s, nullptr);
  const int columns = ceil_div(s.K, tile_k), tiles = ceil_div(g.pixels, g.tile_pixels);
  const int tiles_per_block = ceil_div(tiles, std::max(1, props.sms * blocks_per_sm / columns));
  return {tiles_per_block * g.tile_pixels, ceil_div(tiles, tiles_per_block), columns};
}
Parts forward_parts(const DeviceProps& props, const ConvShape& s) { return parts(props, s, 2); }
Parts weight_parts(const DeviceProps& props, const ConvShape& s) { return parts(props, s, 3); }

}  // namespace

bool conv_stem_takes(const ConvShape& s, DType dtype) {
  constexpr double max_index = 1 << 30;
  return dtype != DType::fp32 && s.groups == 1 && s.C == channels && s.K % 8 == 0 &&
         s.R <= max_filter && s.S <= max_filter && s.padding < 1 << 15 && s.stride < 1 << 15 &&
         double(s.N) * s.P() * s.Q() < max_index && double(s.N) * span(s) < max_index &&
         image(s, nullptr).tile_pixels > 0;
}

size_t conv_stem_forward_bytes(const DeviceProps& props, const ConvForward& op) {
  return sizeof(float) * 2 * forward_parts(props, op.shape).blocks * op.shape.K;
}

void conv_stem_forward(const DeviceProps& props, const ConvForward& op, cudaStream_t stream) {
  const ConvShape& s = op.shape;
  const Parts part = forward_parts(props, s);
  Forward forward{.image = image(s, op.inp),
                  .out = op.out,
                  .weight = op.weight,
                  .K = s.K,
                  .block_pixels = part.pixels};
  if (op.batch_stats) {
    forward.moments = {.moments = op.batch_stats,
                       .rows_of_part = part.pixels,
                       .rows = forward.image.pixels,
                       .C = s.K};
    forward.parts = row_parts(props, op.workspace, part.blocks, s.K, part.columns);
  }
  by_16_bits(op.dtype, [&]<class T>() {
    launch<conv_stem_forward_tiles<T>>(dim3(part.blocks, part.columns), threads,
                                       sizeof(ForwardShared), stream, forward);
  });
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
  by_16_bits(op.dtype, [&]<class T>() {
    launch<conv_stem_weight_tiles<T>>(dim3(part.blocks, part.columns), threads,
                                      sizeof(WeightShared), stream, weight);
  });
  finish_column_sums({.out = op.dweight,
                      .partial = partial,
                      .C = static_cast<int64_t>(s.weight_count()),
                      .blocks = part.blocks,
                      .accumulate = op.accumulate},
                     stream);
}

}  // namespace bv::BAREVISION_GPU

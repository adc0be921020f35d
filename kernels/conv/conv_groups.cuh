// The main loop of conv_implicit_gemm.cu's tiles for convolutions with groups of 4, 8, 16 or 32
// channels. A block of `width` (16 or 32) channels holds whole groups, so a block of out depends
// only on the same block of the image: the filter is block-diagonal, and only its diagonal blocks
// are multiplied,
//   out[pixel, block, n] = sum over taps and k of image[pixel + tap, block, k] filter[block, n, k]
// A block of several groups also multiplies zeros: with groups of 4 channels, only one product in
// four is useful. The other three cost less than the memory accesses that the loop waits for.
//
// A tile is m pixels x n channels of out and reads the same channels of the image. A step is a tap,
// or, if the image is as large as out and the filter 3 wide (3 x 3, stride 1, padding 1), a row of
// three taps, which read the same pixels shifted by one. A tap's filter is [n, width] in both
// directions, with the weight's k as rows. It is expanded when it is copied to shared memory: zeros
// are stored once, and copies write only the groups' own channels.
#pragma once
#include "kernels/conv/conv_image_rows.cuh"

namespace bv::BAREVISION_GPU::implicit_gemm::groups {

constexpr int m = 128, n = 64;
constexpr int row_taps = 3;

// taps: taps per step, 1 or row_taps.
template <int width, int taps>
struct Stage {
  alignas(128) uint4 image[(m + taps - 1) * n / 8];  // [pixels, n]; row_taps: starts 1 pixel early
  alignas(128) uint4 filter[taps][n * width / 8];    // [n, width]
};

// The stages being copied and the one being multiplied: as many as fit in Turing's shared memory.
template <int taps>
constexpr int stages = taps == 1 ? 3 : 2;

template <int width, int taps>
struct Shared {
  union {
    Stage<width, taps> stage[stages<taps>];
    Results<m, n> results;  // once the last stage has been multiplied
  };
  alignas(128) uint4 zeros[n / 8];
};

// ---- Load ---------------------------------------------------------------------------------------
// The pixels that a row of taps reads: the tile's, one before, and one after.
struct ImageStretch {
  using Rows = RowCopies<threads, n / 8>;
  static constexpr int pixels = m + row_taps - 1, rows = ceil_div(pixels, Rows::at_once);

  const uint4* image;     // this thread's chunk of its first pixel, in the filter's first row
  uint32_t inside[rows];  // bit i: row i of taps is inside the image

  __device__ ImageStretch(const Product& p, const Tile& t, int first_chunk) {
    const Geometry& g = p.geometry;
    const int first = t.pixel - 1 + Rows::row();
    image = static_cast<const uint4*>(p.image) +
            (int64_t{first} + t.phase.y.first * g.W) * (p.gemm_k / 8) + first_chunk + Rows::chunk();
#pragma unroll
    for (int k = 0; k < rows; ++k) {
      const int pixel = first + k * Rows::at_once;
      const bool in_bounds = static_cast<unsigned>(pixel) < static_cast<unsigned>(g.pixels);
      const int h = Pixel(g, in_bounds ? pixel : 0).y + t.phase.y.first;
      inside[k] = in_bounds ? taps_inside(h, g.H) : 0;
    }
  }

  __device__ void load(const Product& p, int i, bool in_bounds, uint4* to) const {
    const uint4* const from = image + int64_t{i * p.geometry.W} * (p.gemm_k / 8);
#pragma unroll
    for (int k = 0; k < rows; ++k) {
      if ((k + 1) * Rows::at_once > pixels && k * Rows::at_once + Rows::row() >= pixels) break;
      cp_async_ca_16(at_byte(to, Rows::place(k)),
                     from + int64_t{k * Rows::at_once} * (p.gemm_k / 8),
                     in_bounds && inside[k] >> i & 1);
    }
  }
};

// Copies one step after another.
template <int width, int taps>
struct Loader {
  using Image = std::conditional_t<taps == 1, ImageRows<m, n / 8>, ImageStretch>;
  static constexpr int copies = width / 16;  // of a tap's filter, per thread, at most

  Image image;
  bool channels_in_bounds;
  const uint16_t* weight;  // this thread's first copy of tap 0
  int next_weight;         // elements from one copy of a tap to the next
  int place[copies];       // byte offset in the stage's filter; negative: no copy
  int i = 0, j = 0;        // the next tap

  __device__ Loader(const Product& p, const Tile& t)
      : image(p, t, t.n / 8), channels_in_bounds(t.n / 8 + Image::Rows::chunk() < p.gemm_k / 8) {
    const int pieces = max(p.group / 8, 1);  // of 16 bytes, per row of the filter
    const int rows = threads / pieces;       // copied at once
    const int piece = static_cast<int>(threadIdx.x) % pieces;
    const int first = static_cast<int>(threadIdx.x) / pieces;
    const int row_elements = p.geometry.R * p.geometry.S * p.group;
    weight =
        static_cast<const uint16_t*>(p.weight) + int64_t{t.n + first} * row_elements + piece * 8;
    next_weight = rows * row_elements;
#pragma unroll
    for (int k = 0; k < copies; ++k) {
      const int row = first + k * rows, c = row % width / p.group * p.group + piece * 8;
      place[k] =
          row < n && t.n + row < p.gemm_n ? swizzled_byte<width / 8>(row, c / 8) + c % 8 * 2 : -1;
    }
  }

  // Clears the filters: the places that no copy writes stay zero.
  __device__ static void clear(Shared<width, taps>& s) {
    const auto zero = [](uint4& at) {
      store_pack(reinterpret_cast<uint32_t*>(&at), Pack<uint32_t>{});
    };
#pragma unroll
    for (auto& stage : s.stage)
#pragma unroll
      for (auto& filter : stage.filter)
#pragma unroll
        for (int k = 0; k < n * width / 8; k += threads) zero(filter[k + threadIdx.x]);
    if (taps > 1 && threadIdx.x < n / 8) zero(s.zeros[threadIdx.x]);
    __syncthreads();
  }

  __device__ void load(const Product& p, const Tile& t, Stage<width, taps>& to) {
    const Axis &y = t.phase.y, &x = t.phase.x;
    if constexpr (taps == 1)
      image.load(p, i, j, 0, channels_in_bounds, to.image);
    else
      image.load(p, i, channels_in_bounds, to.image);
#pragma unroll
    for (int tap = 0; tap < taps; ++tap)
      load_filter(
          p, (y.filter + i * y.filter_step) * p.geometry.S + x.filter + (j + tap) * x.filter_step,
          to.filter[tap]);
    if ((j += taps) == x.taps) j = 0, ++i;
  }

 private:
  __device__ void load_filter(const Product& p, int tap, uint4* to) const {
    const uint16_t* const from = weight + tap * p.group;
#pragma unroll
    for (int k = 0; k < copies; ++k)
      if (place[k] >= 0) {
        if (p.group == 4)
          cp_async_ca_8(at_byte(to, place[k]), from + k * next_weight);
        else
          cp_async_ca_16(at_byte(to, place[k]), from + k * next_weight);
      }
  }
};

// ---- Multiply -----------------------------------------------------------------------------------
// A warp's 32 columns depend on the same 32 channels. Each half of the channels is multiplied only
// with the columns that depend on it.
template <class T, int width, int taps, bool input_gradient>
struct Multiplier {
  using Sums = implicit_gemm::Sums<T, m, n>;
  static constexpr int ms = Sums::ms, chunks = width / 8;
  static_assert(Sums::columns == 32);

  int image[taps], filter;  // byte offsets within a stage's image and filter
  // Bit i: this lane's pixel in fragment i is the first of an image's row; bit 16 + i: the last.
  uint32_t edges = 0;

  __device__ Multiplier(const Product& p, const Tile& t) {
    const int lane = threadIdx.x % warp_size, column = Sums::column();
    const int row = Sums::row() + lane % 16;
#pragma unroll
    for (int tap = 0; tap < taps; ++tap)
      image[tap] = swizzled_byte<n / 8>(row + tap, column / 8 + lane / 16);
    filter = input_gradient
                 ? swizzled_byte<chunks>(column + lane % 16, lane / 16)
                 : swizzled_byte<chunks>(column + lane / 16 * 8 + lane % 8, lane / 8 % 2);
    if constexpr (taps > 1)
#pragma unroll
      for (int i = 0; i < ms; ++i) {
        const int x = Pixel(p.geometry, t.pixel + row + i * 16).x;
        edges |= uint32_t{x == 0} << i | uint32_t{x == p.geometry.X - 1} << (16 + i);
      }
  }

  __device__ void multiply(Sums& sums, const Stage<width, taps>& from,
                           const Shared<width, taps>& s) const {
#pragma unroll
    for (int tap = 0; tap < taps; ++tap)
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        uint32_t a[ms][4];
#pragma unroll
        for (int i = 0; i < ms; ++i) load_image(a[i], tap, k, i, from, s);
#pragma unroll
        for (int j = width == 16 ? k : 0; j < (width == 16 ? k + 1 : 2); ++j) {
          uint32_t b[4];
          load_filter(b, k, j, from.filter[tap]);
#pragma unroll
          for (int i = 0; i < ms; ++i) {
            mma_m16n8k16<T>(sums.sum[i][2 * j], a[i], b[0], b[1]);
            mma_m16n8k16<T>(sums.sum[i][2 * j + 1], a[i], b[2], b[3]);
          }
        }
      }
  }

 private:
  // Outside the image, reads zeros in the same banks.
  __device__ void load_image(uint32_t (&a)[4], int tap, int k, int i,
                             const Stage<width, taps>& from, const Shared<width, taps>& s) const {
    const int at = image[tap] ^ k * 32;
    const void* row = at_byte(from.image, at + i * 16 * n * 2);
    if (taps > 1 && tap != 1 && edges >> (tap == 0 ? i : 16 + i) & 1)
      row = at_byte(s.zeros, at % (n * 2));
    ldmatrix_x4(a, row);
  }
  // Loads the fragment of 16 channels from k * 16 on and 16 columns from j * 16 on.
  __device__ void load_filter(uint32_t (&b)[4], int k, int j, const uint4* from) const {
    const int row = input_gradient ? k : j, pair = width == 16 ? 0 : input_gradient ? j : k;
    const void* const at = at_byte(from, (filter ^ pair * 32) + row * 16 * width * 2);
    if (input_gradient)
      ldmatrix_x4_trans(b, at);
    else
      ldmatrix_x4(b, at);
  }
};

}  // namespace bv::BAREVISION_GPU::implicit_gemm::groups

// The main loop of conv_implicit_gemm.cu's tiles where a convolution has groups, of 4, 8, 16 or 32
// channels. A column of out then has few rows of the filter that aren't zero. Blocks of `width` (16
// or 32) channels hold whole groups, so that out's block depends on the same block of the image
// alone: a product by a block-diagonal filter, of which only the diagonal is multiplied,
//   out[pixel, block, n] = sum over taps and k of image[pixel + tap, block, k] filter[block, n, k]
// and zeros only where a block has several groups: with 4 channels, 4 products for each that counts,
// which costs less than the memory they wait for.
//
// A tile is m pixels x n channels, and so are its rows of the image. A step is a tap; its filter is
// [n, width], the weight's k in rows, for both directions, and is expanded on the way into shared
// memory: zeros are stored once, and copies write only the groups' own channels.
#pragma once
#include "kernels/conv/conv_image_rows.cuh"

namespace bv::BAREVISION_GPU::implicit_gemm::groups {

constexpr int m = 128, n = 64;
constexpr int stages = 3;  // of copies in flight: as many as fit into Turing's shared memory

template <int width>
struct Stage {
  alignas(128) uint4 image[m * n / 8];       // [m, n]
  alignas(128) uint4 filter[n * width / 8];  // [n, width]
};

template <int width>
struct Shared {
  union {
    Stage<width> stage[stages];
    Results<m, n> results;  // once the last stage has been multiplied
  };
};

// ---- Load ---------------------------------------------------------------------------------------
// Copies one tap after another.
template <int width>
struct Loader {
  static constexpr int copies = width / 16;  // of the filter, at most, by a thread for each tap

  using Image = ImageRows<m, n / 8>;

  Image image;
  bool channels_in_bounds;
  const uint16_t* weight;  // this thread's first copy of tap 0
  int next_weight;         // elements from one copy of a tap to the next
  int place[copies];       // in bytes, in the stage's filter; negative: there is no copy
  int i = 0, j = 0;        // the next tap

  __device__ Loader(const Product& p, const Tile& t)
      : image(p, t, t.n / 8), channels_in_bounds(t.n / 8 + Image::Rows::chunk() < p.gemm_k / 8) {
    const int pieces = max(p.group / 8, 1);  // of 16 bytes, that a row of the filter has
    const int rows = threads / pieces;       // at once
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

  // Zeros, where no copy will be.
  __device__ static void clear(Stage<width> (&stage)[stages]) {
#pragma unroll
    for (int s = 0; s < stages; ++s)
#pragma unroll
      for (int k = 0; k < n * width / 8; k += threads)
        stage[s].filter[k + threadIdx.x] = {0, 0, 0, 0};
    __syncthreads();
  }

  __device__ void load(const Product& p, const Tile& t, Stage<width>& to) {
    const Axis &y = t.phase.y, &x = t.phase.x;
    image.load(p, i, j, 0, channels_in_bounds, to.image);
    const int r = y.filter + i * y.filter_step, s = x.filter + j * x.filter_step;
    const uint16_t* const from = weight + (r * p.geometry.S + s) * p.group;
#pragma unroll
    for (int k = 0; k < copies; ++k)
      if (place[k] >= 0) {
        if (p.group == 4)
          cp_async_ca_8(at_byte(to.filter, place[k]), from + k * next_weight);
        else
          cp_async_ca_16(at_byte(to.filter, place[k]), from + k * next_weight);
      }
    if (++j == x.taps) j = 0, ++i;
  }
};

// ---- Multiply -----------------------------------------------------------------------------------
// A warp's 32 columns need the same 32 channels: by 16 of them, those columns that they concern.
template <int width, bool input_gradient, class T>
__device__ void multiply(Sums<T, m, n>& sums, const Stage<width>& from) {
  constexpr int chunks = width / 8, ms = Sums<T, m, n>::ms;
  static_assert(Sums<T, m, n>::columns == 32);
  const int lane = threadIdx.x % warp_size, column = sums.column();
  const int image = swizzled_byte<n / 8>(sums.row() + lane % 16, column / 8 + lane / 16);
  const int filter = input_gradient
                         ? swizzled_byte<chunks>(column + lane % 16, lane / 16)
                         : swizzled_byte<chunks>(column + lane / 16 * 8 + lane % 8, lane / 8 % 2);
#pragma unroll
  for (int k = 0; k < 2; ++k) {
    uint32_t a[ms][4];
#pragma unroll
    for (int i = 0; i < ms; ++i)
      ldmatrix_x4(a[i], at_byte(from.image, (image ^ k * 32) + i * 16 * n * 2));
#pragma unroll
    for (int j = width == 16 ? k : 0; j < (width == 16 ? k + 1 : 2); ++j) {
      // Of the filter: 16 rows, and of these a chunk pair.
      const int row = input_gradient ? k : j, pair = width == 16 ? 0 : input_gradient ? j : k;
      const void* const at = at_byte(from.filter, (filter ^ pair * 32) + row * 16 * width * 2);
      uint32_t b[4];
      if (input_gradient)
        ldmatrix_x4_trans(b, at);
      else
        ldmatrix_x4(b, at);
#pragma unroll
      for (int i = 0; i < ms; ++i) {
        mma_m16n8k16<T>(sums.sum[i][2 * j], a[i], b[0], b[1]);
        mma_m16n8k16<T>(sums.sum[i][2 * j + 1], a[i], b[2], b[3]);
      }
    }
  }
}

}  // namespace bv::BAREVISION_GPU::implicit_gemm::groups

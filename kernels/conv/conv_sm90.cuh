// Operands of Hopper's matrix product (kernels/gemm/sm90_product.cuh) that are images and filters
// of a convolution. A step of k is 64 channels of a tap, or for the weight's gradient 64 pixels.
// TMA's im2col copies pixels in the order of out's, moved by the tap, and zeros outside the image.
#pragma once
#include "kernels/gemm/conv_geometry.cuh"
#include "kernels/gemm/sm90_product.cuh"

namespace bv::BAREVISION_GPU::sm90 {

// The taps of a filter, or of a part of it, with which out's pixels are computed, row by row.
struct Taps {
  int blocks, width;       // of 64 channels; taps in a row
  int first, down, right;  // tap (i, j) is number first + i down + j right of the filter
  Divisor by_blocks, by_width;

  struct Tap {
    int i, j, channel;
  };
  __device__ Tap of_step(int step) const {
    const int tap = by_blocks.divide(step), i = by_width.divide(tap);
    return {.i = i, .j = tap - i * width, .channel = (step - tap * blocks) * depth};
  }
  __device__ int number(const Tap& tap) const { return first + tap.i * down + tap.j * right; }
};

// An image [N, H, W, channels]; out's pixel (y, x) and tap (i, j) read its pixel
// (y stride + first_y + i, x stride + first_x + j).
struct Pixels {
  CUtensorMap map;  // im2col; or tiled, of the matrix [pixels, channels], if they are out's pixels
  bool is_matrix;
  int Y, X;  // of out
  int stride, first_y, first_x;
  Divisor by_image, by_row;  // Y * X, X

  // 64 channels of as many pixels as the map's boxes have.
  __device__ void copy(char* to, int pixel, const Taps::Tap& tap, uint64_t* full) const {
    if (is_matrix) return cp_async_bulk_tensor(to, map, full, {tap.channel, pixel});
    const int image = by_image.divide(pixel), rest = pixel - image * (Y * X);
    const int y = by_row.divide(rest), x = rest - y * X;
    cp_async_bulk_tensor_im2col(to, map, full,
                                {tap.channel, x * stride + first_x, y * stride + first_y, image},
                                {static_cast<uint16_t>(tap.j), static_cast<uint16_t>(tap.i)});
  }
};

// Rows: out's pixels; k: the taps' channels.
struct Image : KMajor {
  Pixels pixels;
  Taps taps;

  template <int tile>
  __device__ void copy(char* to, int row, int step, uint64_t* full) const {
    pixels.copy(to, row, taps.of_step(step), full);
  }
};
// Rows: the taps' channels; k: out's pixels.
struct ImageAlongRows : RowMajor {
  Pixels pixels;
  Taps taps;

  template <int tile>
  __device__ void copy(char* to, int row, int step, uint64_t* full) const {
    each_block<tile>(to, row, [&](char* block, int first) {
      pixels.copy(block, step * depth, taps.of_step(first / depth), full);
    });
  }
};

// A filter [K, taps, C]. Rows: K; k: the taps' channels.
struct Filter : KMajor {
  CUtensorMap map;  // in boxes of [tile, 1, 64]
  Taps taps;

  template <int tile>
  __device__ void copy(char* to, int row, int step, uint64_t* full) const {
    const auto tap = taps.of_step(step);
    cp_async_bulk_tensor(to, map, full, {tap.channel, taps.number(tap), row});
  }
};
// The same along its rows: C; k: the taps' K.
struct FilterAlongRows : RowMajor {
  CUtensorMap map;  // in boxes of [64, 1, 64]
  Taps taps;

  template <int tile>
  __device__ void copy(char* to, int row, int step, uint64_t* full) const {
    const auto tap = taps.of_step(step);
    each_block<tile>(to, row, [&](char* block, int first) {
      cp_async_bulk_tensor(block, map, full, {first, taps.number(tap), tap.channel});
    });
  }
};

}  // namespace bv::BAREVISION_GPU::sm90

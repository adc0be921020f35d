// Operands of Hopper's matrix product (kernels/gemm/sm90_product.cuh) that are images and filters
// of a convolution. A step of k is 64 channels of a tap, or for the weight's gradient 64 pixels.
// TMA's im2col copies pixels in the order of out's, moved by the tap, and zeros outside the image.
#pragma once
#include "kernels/gemm/conv_geometry.cuh"
#include "kernels/gemm/sm90_product.cuh"

namespace bv::BAREVISION_GPU::sm90 {

// The taps of a filter with which out's pixels are computed, in their order.
struct Taps {
  static constexpr int max_count = 64;
  struct Tap {
    uint8_t i, j;     // rows and columns from the first that any tap reads
    uint16_t number;  // in the filter
  };
  struct Step {
    Tap tap;
    int channel;
  };
  int last;    // tap
  int blocks;  // of 64 channels
  Divisor by_blocks;
  Tap taps[max_count];

  // Steps past the last tap's have channels past its last, zeros: those of phases without taps.
  __device__ Step of_step(int step) const {
    const int tap = min(by_blocks.divide(step), last);
    return {taps[tap], (step - tap * blocks) * depth};
  }
};

// An image [N, H, W, channels]; out's pixel (y, x) and a tap read its pixel
// (y stride + first_y + i, x stride + first_x + j).
struct Pixels {
  CUtensorMap map;  // im2col; or tiled, of the matrix [pixels, channels], if they are out's pixels
  bool is_matrix;
  int Y, X;  // of out
  int stride, first_y, first_x;
  Divisor by_image, by_row;  // Y * X, X

  // 64 channels of as many pixels as the map's boxes have.
  __device__ void copy(char* to, int pixel, const Taps::Step& step, uint64_t* full) const {
    if (is_matrix) return cp_async_bulk_tensor(to, map, full, {step.channel, pixel});
    const int image = by_image.divide(pixel), rest = pixel - image * (Y * X);
    const int y = by_row.divide(rest), x = rest - y * X;
    cp_async_bulk_tensor_im2col(to, map, full,
                                {step.channel, x * stride + first_x, y * stride + first_y, image},
                                {step.tap.j, step.tap.i});
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
    const auto [tap, channel] = taps.of_step(step);
    cp_async_bulk_tensor(to, map, full, {channel, tap.number, row});
  }
};
// The same along its rows: C; k: the taps' K.
struct FilterAlongRows : RowMajor {
  CUtensorMap map;  // in boxes of [64, 1, 64]
  Taps taps;

  template <int tile>
  __device__ void copy(char* to, int row, int step, uint64_t* full) const {
    const auto [tap, channel] = taps.of_step(step);
    each_block<tile>(to, row, [&](char* block, int first) {
      cp_async_bulk_tensor(block, map, full, {first, tap.number, channel});
    });
  }
};

}  // namespace bv::BAREVISION_GPU::sm90

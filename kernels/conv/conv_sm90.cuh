// Images and filters of a convolution as operands of kernels/gemm/sm90_product.cuh. A step of k is
// 64 channels of a tap, or 64 pixels in the weight gradient. TMA in im2col mode copies pixels in
// the order of out's pixels, shifted by the tap; pixels outside the image become zeros.
#pragma once
#include "kernels/gemm/conv_geometry.cuh"
#include "kernels/gemm/sm90_product.cuh"

namespace bv::BAREVISION_GPU::sm90 {

// The taps of a filter with which out's pixels are computed, in order.
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
  int last;    // the last tap's index
  int blocks;  // of 64 channels
  Divisor by_blocks;
  Tap taps[max_count];

  // A phase without taps has a step past the last tap: it reads channels past the last, as zeros.
  __device__ Step of_step(int step) const {
    const int tap = min(by_blocks.divide(step), last);
    return {taps[tap], (step - tap * blocks) * depth};
  }
};

// An image [N, H, W, channels]. For out's pixel (y, x), a tap reads the image's pixel
// (y stride + first_y + i, x stride + first_x + j).
struct Pixels {
  CUtensorMap map;  // im2col; tiled, of the matrix [pixels, channels], if is_matrix
  bool is_matrix;   // each pixel of out reads the same pixel of the image
  int Y, X;         // of out
  int stride, first_y, first_x;
  Divisor by_image, by_row;  // Y * X, X

  // Copies 64 channels of as many pixels as the map's boxes hold.
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
// The same filter, contiguous along its rows. Rows: C; k: the taps' K.
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

// Sums of batch norm's backward, for batchnorm.cu and for the convolution whose epilogue computes
// them. Layer norm's backward sums its weight and bias gradients in the same way.
#pragma once
#include "kernels/cuda/last_block.cuh"
#include "kernels/cuda/reduce.cuh"

namespace bv::BAREVISION_GPU {

template <int width>
struct NormColumns {
  float mean[width], scale[width], bias[width];  // scale = rstd * weight

  // y before the residual; backward recomputes its sign.
  __device__ float normalised(int i, float x) const { return fmaf(x - mean[i], scale[i], bias[i]); }
};

template <int width>
__device__ NormColumns<width> norm_columns(const float (&mean)[width], const float (&rstd)[width],
                                           const float* weight, const float* bias, int column) {
  const auto w = load<width>(weight + column), b = load<width>(bias + column);
  NormColumns<width> c;
#pragma unroll
  for (int i = 0; i < width; ++i) {
    c.mean[i] = mean[i];
    c.scale[i] = rstd[i] * w.at[i];
    c.bias[i] = b.at[i];
  }
  return c;
}

// The byte of BatchNormForward's `relu_mask` for a row's column. The 8 bytes of a row's 64 columns
// are adjacent, followed by those of the next row, so a warp's neighbouring rows are adjacent in
// memory.
__device__ inline size_t relu_mask_byte(int rows, int row, int column) {
  return (size_t(column / 64) * rows + row) * 8 + column % 64 / 8;
}
// The mask's bits for `width` columns.
template <int width>
__device__ unsigned load_relu_mask(const uint64_t* relu_mask, int rows, int row, int column) {
  const unsigned byte =
      reinterpret_cast<const uint8_t*>(relu_mask)[relu_mask_byte(rows, row, column)];
  return width < 8 ? byte >> column % 8 : byte;
}
// Called by all lanes whose columns share a byte; these lanes are neighbours. The first of them
// stores the byte.
template <int width>
__device__ void store_relu_mask(uint64_t* relu_mask, const RowsShape& shape, int row, int column,
                                unsigned bits) {
  if constexpr (width < 8) {
    constexpr int lanes = 8 / width;
    const int lane = threadIdx.x % warp_size, first = lane / lanes * lanes;
    const int present = min(lanes, (shape.C - column / 8 * 8) / width);
    const unsigned mask = ((1u << present) - 1) << first;
    unsigned byte = 0;
    for (int i = 0; i < present; ++i) byte |= __shfl_sync(mask, bits, first + i) << i * width;
    if (lane > first) return;
    bits = byte;
  }
  reinterpret_cast<uint8_t*>(relu_mask)[relu_mask_byte(shape.rows, row, column)] =
      static_cast<uint8_t>(bits);
}

// LastBlock policy: merges the parts' sums of g and of g * xhat.
struct NormSums {
  struct Value {
    float g, g_xhat;
    __device__ friend void merge(Value& a, const Value& b) { a.g += b.g, a.g_xhat += b.g_xhat; }
  };
  float* sums;             // [2, C]  =, or null
  float *dweight, *dbias;  // [C]  = or +=, per accumulate
  int C;
  bool accumulate;

  __device__ Value value(int, int, float g, float g_xhat) const { return {g, g_xhat}; }
  __device__ void save(float* part, const Value& of) const { part[0] = of.g, part[C] = of.g_xhat; }
  __device__ void finish(int c, const Value& of) const {
    if (sums) sums[c] = of.g, sums[C + c] = of.g_xhat;
    dbias[c] = accumulate ? dbias[c] + of.g : of.g;
    dweight[c] = accumulate ? dweight[c] + of.g_xhat : of.g_xhat;
  }
};

}  // namespace bv::BAREVISION_GPU

// The rows of the image that a tile of conv_implicit_gemm.cu loads for each tap of the filter.
#pragma once
#include "kernels/conv/conv_epilogue.cuh"

namespace bv::BAREVISION_GPU::implicit_gemm {

constexpr int max_taps = 16;  // per axis; a 32-bit mask holds both axes

// A mask of the taps that fall inside the image, the first tap being at `first`.
__device__ inline uint32_t taps_inside(int first, int image) {
  const int begin = min(max(-first, 0), max_taps), end = min(max(image - first, 0), max_taps);
  return ((1u << end) - 1) & ~((1u << begin) - 1);
}

// Copies a row of the image, `chunks` neighbouring chunks of gemm_k, for each of the tile's m
// pixels. Offsets are in chunks of 16 bytes.
template <int m, int chunks>
struct ImageRows {
  using Rows = RowCopies<threads, chunks>;
  static constexpr int rows = m / Rows::at_once;

  const uint4* image;
  int offset[rows];  // of this thread's rows at tap 0, 0
  // Bits 0 to 15: the taps along y that fall inside the image; bits 16 to 31: those along x.
  uint32_t inside[rows];

  __device__ ImageRows(const Product& p, const Tile& t, int first_chunk)
      : image(static_cast<const uint4*>(p.image)) {
    const Geometry& g = p.geometry;
    const Axis &y = t.phase.y, &x = t.phase.x;
#pragma unroll
    for (int k = 0; k < rows; ++k) {
      const int pixel = t.pixel + Rows::row() + k * Rows::at_once;
      const Pixel at(g, pixel < g.pixels ? pixel : 0);
      const int h = at.y * y.step + y.first, w = at.x * x.step + x.first;
      offset[k] = ((at.image * g.H + h) * g.W + w) * (p.gemm_k / 8) + first_chunk + Rows::chunk();
      inside[k] = pixel < g.pixels ? taps_inside(h, g.H) | taps_inside(w, g.W) << max_taps : 0;
    }
  }

  // Copies the rows of tap i, j, from chunk c on.
  __device__ void load(const Product& p, int i, int j, int c, bool in_bounds, uint4* to) const {
    const uint4* from = image + (int64_t{i * p.geometry.W + j} * (p.gemm_k / 8) + c);
    const uint32_t tap_bits = 1u << i | 1u << (max_taps + j);
#pragma unroll
    for (int k = 0; k < rows; ++k)
      cp_async_ca_16(at_byte(to, Rows::place(k)), from + offset[k],
                     in_bounds && (inside[k] & tap_bits) == tap_bits);
  }
};

}  // namespace bv::BAREVISION_GPU::implicit_gemm

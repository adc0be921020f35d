// The arithmetic of wgmma. Rounded sums are accumulated in the order of K, as in mma's stand-in.
#include <cstring>

#include "simt/device/tensor_cores.h"
#include "simt/hopper/wgmma_operands.h"

namespace simt {
namespace {

using Vector = float __attribute__((vector_size(32), aligned(4), may_alias));

constexpr unsigned rows = 16, width = 8;

// A block of 4 rows and `vectors` * 8 columns stays in registers.
template <unsigned vectors>
void add_block(float* d, unsigned n, const float* a, unsigned a_stride, const float* b,
               unsigned b_stride) {
  Vector sum[4][vectors];
#pragma GCC unroll 4
  for (unsigned i = 0; i < 4; ++i)
#pragma GCC unroll 3
    for (unsigned v = 0; v < vectors; ++v)
      sum[i][v] = *reinterpret_cast<const Vector*>(d + i * n + v * width);
  for (unsigned k = 0; k < wgmma_k; ++k)
#pragma GCC unroll 3
    for (unsigned v = 0; v < vectors; ++v) {
      const Vector x = *reinterpret_cast<const Vector*>(b + k * b_stride + v * width);
#pragma GCC unroll 4
      for (unsigned i = 0; i < 4; ++i) sum[i][v] += a[k * a_stride + i] * x;
    }
#pragma GCC unroll 4
  for (unsigned i = 0; i < 4; ++i)
#pragma GCC unroll 3
    for (unsigned v = 0; v < vectors; ++v)
      *reinterpret_cast<Vector*>(d + i * n + v * width) = sum[i][v];
}

void add_rounded(float* d, unsigned n, const float* a, unsigned a_stride, const float* b,
                 unsigned b_stride) {
  for (unsigned column = 0; column < n;) {
    const unsigned left = (n - column) / width;
    for (unsigned row = 0; row < rows; row += 4) {
      float* const to = d + row * n + column;
      if (left >= 3)
        add_block<3>(to, n, a + row, a_stride, b + column, b_stride);
      else if (left == 2)
        add_block<2>(to, n, a + row, a_stride, b + column, b_stride);
      else
        add_block<1>(to, n, a + row, a_stride, b + column, b_stride);
    }
    column += width * std::min(left, 3u);
  }
}

}  // namespace

void wgmma_product(float* d, unsigned n, const float* a, unsigned a_stride, const float* b,
                   unsigned b_stride) {
  if (!tensor_cores.block) return add_rounded(d, n, a, a_stride, b, b_stride);
  for (unsigned row = 0; row < rows; ++row)
    for (unsigned column = 0; column < n; ++column)
      d[row * n + column] = truncated_sum(d[row * n + column], wgmma_k, [&](int i) {
        const auto k = unsigned(i);
        return double(a[k * a_stride + row]) * b[k * b_stride + column];
      });
}

}  // namespace simt

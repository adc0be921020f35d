// Products of matrices that fit a core's caches, for attention's tiles:  c = a b  or  c += a b.
//   c [m, n]   rows `c_row` floats apart
//   a [m, k]   element (i, p) at a[i * a_row + p * a_k]: a transposed a costs nothing more
//   b [k, n]   packed in panels of at most panel_vectors vectors of columns, each panel [k,
//   columns]
//              in one piece, so that the innermost loop reads it in order; n is a multiple of width
// A block of c is held in registers while k runs: row_block x panel_vectors vectors, 24 of 32
// registers with AVX-512 and 12 of 16 with AVX2, so that each vector of b serves six multiply-adds
// and each element of a four (two). Every element of c is a sum over k in order: the result does
// not depend on how rows are cut into blocks.
#pragma once
#include <cstddef>

#include "kernels/cpu/simd.h"
#include "kernels/cpu/transpose.h"

namespace bv::BAREVISION_ISA {

constexpr int row_block = 6;
constexpr int panel_vectors = simd::width == 16 ? 4 : 2;
constexpr int k_block = 128;  // rows of a panel that stay in the first-level cache

constexpr int round_up(int n, int multiple) { return (n + multiple - 1) / multiple * multiple; }

// `total` cut into as few parts of at most `most` as will do, of nearly equal sizes.
struct Parts {
  int total, count;

  constexpr Parts(int size, int most) : total(size), count((size + most - 1) / most) {}
  constexpr int begin(int part) const { return total * part / count; }
};

// b[i, j] = inp[i * stride + j] for j < n, 0 up to the next multiple of width
static inline void pack_rows(float* b, const float* inp, ptrdiff_t stride, int k, int n) {
  const Parts panels(round_up(n, simd::width) / simd::width, panel_vectors);
  for (int panel = 0; panel < panels.count; ++panel) {
    const int begin = panels.begin(panel) * simd::width;
    const int columns = panels.begin(panel + 1) * simd::width - begin;
    float* to = b + ptrdiff_t(begin) * k;
    for (int i = 0; i < k; ++i, to += columns)
      for (int j = 0; j < columns; j += simd::width) {
        const int left = n - begin - j;
        const float* from = inp + i * stride + begin + j;
        simd::store(to + j, left >= simd::width ? simd::load(from)
                                                : simd::load_partial(from, left > 0 ? left : 0));
      }
  }
}

// b[i, j] = inp[j * stride + i] for j < n, 0 up to the next multiple of width
static inline void pack_columns(float* b, const float* inp, ptrdiff_t stride, int k, int n) {
  const Parts panels(round_up(n, simd::width) / simd::width, panel_vectors);
  for (int panel = 0; panel < panels.count; ++panel) {
    const int begin = panels.begin(panel) * simd::width;
    const int columns = panels.begin(panel + 1) * simd::width - begin;
    const int used = n - begin < columns ? n - begin : columns;
    float* to = b + ptrdiff_t(begin) * k;
    transpose_tile(to, columns, inp + begin * stride, stride, used, k);
    for (int i = 0; used < columns && i < k; ++i)
      for (int j = used; j < columns; ++j) to[ptrdiff_t(i) * columns + j] = 0;
  }
}

// rows x vectors * width elements of c; both are constants, for they live in registers.
template <int rows, int vectors>
void product_block(float* c, ptrdiff_t c_row, const float* a, ptrdiff_t a_row, ptrdiff_t a_k,
                   const float* b, int k, bool accumulate) {
  simd::vf sum[rows][vectors];
#pragma GCC unroll 8
  for (int i = 0; i < rows; ++i)
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v)
      sum[i][v] = accumulate ? simd::load(c + i * c_row + v * simd::width) : simd::vf{};
  for (int p = 0; p < k; ++p, a += a_k, b += vectors * simd::width) {
    simd::vf row[vectors];
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) row[v] = simd::load(b + v * simd::width);
#pragma GCC unroll 8
    for (int i = 0; i < rows; ++i) {
      const simd::vf element = simd::set(a[i * a_row]);
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) sum[i][v] = simd::fma(element, row[v], sum[i][v]);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < rows; ++i)
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) simd::store(c + i * c_row + v * simd::width, sum[i][v]);
}

using ProductBlock = void (*)(float*, ptrdiff_t, const float*, ptrdiff_t, ptrdiff_t, const float*,
                              int, bool);

// f.template operator()<rows, vectors>() with the sizes of a block as constants.
template <int rows, class F>
auto block_of(int vectors, F f) {
  if constexpr (panel_vectors == 4) {
    if (vectors == 4) return f.template operator()<rows, 4>();
    if (vectors == 3) return f.template operator()<rows, 3>();
  }
  return vectors == 2 ? f.template operator()<rows, 2>() : f.template operator()<rows, 1>();
}
template <class F>
auto block_of(int rows, int vectors, F f) {
  static_assert(row_block == 6);
  switch (rows) {
    case 1:
      return block_of<1>(vectors, f);
    case 2:
      return block_of<2>(vectors, f);
    case 3:
      return block_of<3>(vectors, f);
    case 4:
      return block_of<4>(vectors, f);
    case 5:
      return block_of<5>(vectors, f);
    default:
      return block_of<6>(vectors, f);
  }
}

static inline ProductBlock product_block_of(int rows, int vectors) {
  return block_of(rows, vectors,
                  []<int r, int v>() -> ProductBlock { return product_block<r, v>; });
}

struct Factor {  // a
  const float* data;
  ptrdiff_t row, k;  // strides
};

// n counts the columns that b was packed with; c is written up to the next multiple of width.
static inline void multiply(float* c, ptrdiff_t c_row, Factor a, const float* b, int m, int n,
                            int k, bool accumulate) {
  const Parts panels(round_up(n, simd::width) / simd::width, panel_vectors);
  const Parts blocks(m, row_block), k_blocks(k, k_block);
  for (int kb = 0; kb < k_blocks.count; ++kb) {
    const int p = k_blocks.begin(kb), depth = k_blocks.begin(kb + 1) - p;
    for (int panel = 0; panel < panels.count; ++panel) {
      const int first = panels.begin(panel), vectors = panels.begin(panel + 1) - first;
      const float* b_at =
          b + ptrdiff_t(first) * simd::width * k + ptrdiff_t(p) * vectors * simd::width;
      for (int block = 0; block < blocks.count; ++block) {
        const int i = blocks.begin(block), rows = blocks.begin(block + 1) - i;
        product_block_of(rows, vectors)(c + i * c_row + first * simd::width, c_row,
                                        a.data + i * a.row + p * a.k, a.row, a.k, b_at, depth,
                                        accumulate || kb > 0);
      }
    }
  }
}

}  // namespace bv::BAREVISION_ISA

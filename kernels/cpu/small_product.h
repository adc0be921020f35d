// Products of matrices that fit a core's caches, for attention's tiles:  c = a b  or  c += a b.
//   c [m, n]   rows `c_row` floats apart
//   a [m, k]   element (i, p) at a[i * a_row + p * a_k]: a transposed a costs nothing extra
//   b [k, n]   packed in panels of up to panel_vectors vectors of columns, each panel [k, columns]
//              in one piece, so that the innermost loop reads it in order; n is a multiple of width
// In bf16, a pair of neighbours in k takes the place of a float, as one element of a and of b, and
// k counts pairs; if the number of elements is odd, the last pair's second is 0 in b and finite in
// a. A block of c stays in registers while k runs: 24 of 32 vectors with AVX-512, 12 of 16 with
// AVX2. Each vector of b then serves six multiply-adds and each element of a four (two). Every
// element of c is a sum over k in order, independent of the division of rows into blocks.
#pragma once
#include <cstddef>

#include "kernels/cpu/simd.h"
#include "kernels/cpu/transpose.h"

namespace bv::BAREVISION_ISA {

constexpr int row_block = 6;
constexpr int panel_vectors = simd::width == 16 ? 4 : 2;
constexpr int k_block = 128;  // rows of a panel that stay in the L1 cache

constexpr int round_up(int n, int multiple) { return (n + multiple - 1) / multiple * multiple; }

// `total` cut into as few parts of at most `max_size` as possible, of nearly equal sizes.
struct Parts {
  int total, count;

  constexpr Parts(int size, int max_size) : total(size), count((size + max_size - 1) / max_size) {}
  constexpr int begin(int part) const { return total * part / count; }
};

// The columns of a matrix in panels of nearly equal numbers of vectors.
struct Panels {
  int columns;
  Parts vectors{round_up(columns, simd::width) / simd::width, panel_vectors};
  int count = vectors.count;

  constexpr int begin(int panel) const { return vectors.begin(panel) * simd::width; }
  constexpr int width(int panel) const { return begin(panel + 1) - begin(panel); }  // padded
  constexpr int used(int panel) const {
    return (columns < begin(panel + 1) ? columns : begin(panel + 1)) - begin(panel);
  }
};

// One panel [k, width]: to[i, j] = from[i * stride + j] for j < used, else 0
static inline void pack_panel_rows(float* to, const float* from, ptrdiff_t stride, int k, int width,
                                   int used) {
  for (int i = 0; i < k; ++i, to += width, from += stride)
    for (int j = 0; j < width; j += simd::width)
      simd::store(to + j, used - j >= simd::width ? simd::load(from + j)
                                                  : simd::load_partial(from + j, used - j));
}

// to[i, j] = from[j * stride + i] for j < used, else 0
static inline void pack_panel_columns(float* to, const float* from, ptrdiff_t stride, int k,
                                      int width, int used) {
  transpose_tile(to, width, from, stride, used, k);
  for (int i = 0; used < width && i < k; ++i)
    for (int j = used; j < width; ++j) to[ptrdiff_t(i) * width + j] = 0;
}

// b[i, j] = inp[i * stride + j] for j < n, 0 up to the next multiple of width
static inline void pack_rows(float* b, const float* inp, ptrdiff_t stride, int k, int n) {
  const Panels panels(n);
  for (int panel = 0; panel < panels.count; ++panel) {
    const int begin = panels.begin(panel);
    pack_panel_rows(b + ptrdiff_t(begin) * k, inp + begin, stride, k, panels.width(panel),
                    panels.used(panel));
  }
}

// b[i, j] = inp[j * stride + i] for j < n, 0 up to the next multiple of width
static inline void pack_columns(float* b, const float* inp, ptrdiff_t stride, int k, int n) {
  const Panels panels(n);
  for (int panel = 0; panel < panels.count; ++panel) {
    const int begin = panels.begin(panel);
    pack_panel_columns(b + ptrdiff_t(begin) * k, inp + begin * stride, stride, k,
                       panels.width(panel), panels.used(panel));
  }
}

// The same for bf16, in pairs along k.
static inline void pack_rows(float* b, const simd::bf16* inp, ptrdiff_t stride, int k, int n) {
  const Panels panels(n);
  for (int panel = 0; panel < panels.count; ++panel) {
    const int begin = panels.begin(panel), width = panels.width(panel), used = panels.used(panel);
    float* to = b + ptrdiff_t(begin) * ((k + 1) / 2);
    for (int i = 0; i < k; i += 2, to += width)
      simd::for_each(used, [&](int j, auto lanes) {
        const simd::bf16* from = inp + i * stride + begin + j;
        const simd::vf high = i + 1 < k ? lanes.load(from + stride) : simd::vf{};
        simd::store(to + j, simd::pairs(lanes.load(from), high));
      });
  }
}
static inline void pack_columns(float* b, const simd::bf16* inp, ptrdiff_t stride, int k, int n) {
  pack_columns(b, reinterpret_cast<const float*>(inp), stride / 2, k / 2, n);
}

// A block of c in registers; its sizes are constants so that every loop unrolls.
template <int rows, int vectors>
struct Block {
  simd::vf sum[rows][vectors];

  // row(i) points to the block's columns in row i.
  template <class Row>
  __attribute__((always_inline)) void load(Row row) {
#pragma GCC unroll 8
    for (int i = 0; i < rows; ++i)
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) sum[i][v] = simd::load(row(i) + v * simd::width);
  }
  __attribute__((always_inline)) void clear() {
#pragma GCC unroll 8
    for (int i = 0; i < rows; ++i)
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) sum[i][v] = simd::vf{};
  }
  template <class Row>
  __attribute__((always_inline)) void store(Row row) const {
#pragma GCC unroll 8
    for (int i = 0; i < rows; ++i)
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) simd::store(row(i) + v * simd::width, sum[i][v]);
  }
  // c[i, :] += a(i) b[:]
  template <class T = float, class A>
  __attribute__((always_inline)) void add(A a, const float* b) {
    simd::vf row[vectors];
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) row[v] = simd::load(b + v * simd::width);
#pragma GCC unroll 8
    for (int i = 0; i < rows; ++i) {
      const simd::vf element = simd::set(a(i));
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v)
        sum[i][v] = simd::multiply_add(T{}, element, row[v], sum[i][v]);
    }
  }
};

template <int rows, int vectors, class T>
void product_block(float* c, ptrdiff_t c_row, const float* a, ptrdiff_t a_row, ptrdiff_t a_k,
                   const float* b, int k, bool accumulate) {
  const auto row = [&](int i) { return c + i * c_row; };
  Block<rows, vectors> block;
  if (accumulate)
    block.load(row);
  else
    block.clear();
  for (int p = 0; p < k; ++p, a += a_k, b += vectors * simd::width)
    block.template add<T>([&](int i) { return a[i * a_row]; }, b);
  block.store(row);
}

// Calls f.template operator()<rows, vectors>() with the sizes of a block as constants.
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
  if (rows == 1) return block_of<1>(vectors, f);
  if (rows == 2) return block_of<2>(vectors, f);
  if (rows == 3) return block_of<3>(vectors, f);
  if (rows == 4) return block_of<4>(vectors, f);
  return rows == 5 ? block_of<5>(vectors, f) : block_of<6>(vectors, f);
}

struct Factor {  // a
  const float* data;
  ptrdiff_t row, k;  // strides
};

// n: the number of columns with which b was packed; c is written up to the next multiple of width.
// T: the element type of a and b.
template <class T = float>
void multiply(float* c, ptrdiff_t c_row, Factor a, const float* b, int m, int n, int k,
              bool accumulate) {
  const Panels panels(n);
  const Parts blocks(m, row_block), k_blocks(k, k_block);
  for (int kb = 0; kb < k_blocks.count; ++kb) {
    const int p = k_blocks.begin(kb), depth = k_blocks.begin(kb + 1) - p;
    for (int panel = 0; panel < panels.count; ++panel) {
      const int column = panels.begin(panel), width = panels.width(panel);
      const float* b_at = b + ptrdiff_t(column) * k + ptrdiff_t(p) * width;
      for (int block = 0; block < blocks.count; ++block) {
        const int i = blocks.begin(block), rows = blocks.begin(block + 1) - i;
        const auto product = block_of(rows, width / simd::width,
                                      []<int r, int v>() { return product_block<r, v, T>; });
        product(c + i * c_row + column, c_row, a.data + i * a.row + p * a.k, a.row, a.k, b_at,
                depth, accumulate || kb > 0);
      }
    }
  }
}

}  // namespace bv::BAREVISION_ISA

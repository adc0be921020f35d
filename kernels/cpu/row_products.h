// Products of matrices whose rows may lie anywhere in memory, for convolutions: the rows are pixels
// that the same filter taps reach.
//   c[i, :] = (from[i, :] +) sum over runs of  a[i, run.a ... + depth] b[run.b ... + depth, :]
// A block of c stays in registers throughout the runs of a chunk (sizes: small_product.h). b is
// packed in panels, [panel, row, columns of the panel]; a chunk's part of a panel stays in the L2
// cache for all blocks of rows, and is long enough for loads and stores of c to cost little.
#pragma once
#include <cstddef>

#include "kernels/cpu/simd.h"
#include "kernels/cpu/small_product.h"

namespace bv::BAREVISION_ISA {

// A run: adjacent elements of a's rows, and the rows of b that they multiply.
struct Run {
  ptrdiff_t a;  // from the row's pointer
  int b, depth;
};

// Runs per pass over c: with AVX-512, they take 144 KiB of a panel.
struct Chunk {
  static constexpr int max_runs = 32, max_depth = 576;
  int count = 0, depth = 0;
  Run run[max_runs];

  bool takes(int more) const {
    return count == 0 || (count < max_runs && depth + more <= max_depth);
  }
  void add(const Run& next) { run[count++] = next, depth += next.depth; }
};

// Pointers to each row's element in column 0; from may be null.
struct Rows {
  float* const* c;
  const float* const* from;
  const float* const* a;
};

// Columns column ... column + vectors * width of the rows; panel [b's rows, vectors * width]
template <int rows, int vectors>
void runs_block(Rows at, int column, const Chunk& chunk, const float* panel) {
  Block<rows, vectors> block;
  if (at.from)
    block.load([&](int i) { return at.from[i] + column; });
  else
    block.clear();
  for (int r = 0; r < chunk.count; ++r) {
    const Run run = chunk.run[r];
    const float* a[rows];
#pragma GCC unroll 8
    for (int i = 0; i < rows; ++i) a[i] = at.a[i] + run.a;
    const float* b = panel + ptrdiff_t(run.b) * vectors * simd::width;
    for (ptrdiff_t p = 0; p < run.depth; ++p, b += vectors * simd::width)
      block.add([&](int i) { return a[i][p]; }, b);
  }
  block.store([&](int i) { return at.c[i] + column; });
}

// One panel's columns of `count` rows.
static inline void multiply_rows(Rows at, int count, const Panels& panels, int panel,
                                 const Chunk& chunk, const float* packed) {
  const int column = panels.begin(panel), width = panels.width(panel), used = panels.used(panel);
  const Parts blocks(count, row_block);
  for (int block = 0; block < blocks.count; ++block) {
    const int first = blocks.begin(block), rows = blocks.begin(block + 1) - first;
    const auto product =
        block_of(rows, width / simd::width, []<int r, int v>() { return runs_block<r, v>; });
    const Rows here{at.c + first, at.from ? at.from + first : nullptr, at.a + first};
    if (used == width) {
      product(here, column, chunk, packed);
      continue;
    }
    float tile[row_block][panel_vectors * simd::width];  // whole vectors; c's rows end sooner
    float* c[row_block];
    for (int i = 0; i < rows; ++i) {
      c[i] = tile[i];
      if (here.from) __builtin_memcpy(tile[i], here.from[i] + column, size_t(used) * sizeof(float));
    }
    product({c, here.from ? c : nullptr, here.a}, 0, chunk, packed);
    for (int i = 0; i < rows; ++i)
      __builtin_memcpy(here.c[i] + column, tile[i], size_t(used) * sizeof(float));
  }
}

// c[i, :] += sum over p of a[p][i0 + i] b[p][j0 ... + vectors * width]: the weight gradient, whose
// operands are both given as pointers to rows
struct Pixels {
  const float* const* a;
  const float* const* b;
  int count;
};
template <int rows, int vectors>
void columns_block(float* c, ptrdiff_t c_row, Pixels pixels, ptrdiff_t i0, ptrdiff_t j0) {
  const auto row = [&](int i) { return c + i * c_row; };
  Block<rows, vectors> block;
  block.load(row);
  for (ptrdiff_t p = 0; p < pixels.count; ++p) {
    const float* a = pixels.a[p] + i0;
    block.add([&](int i) { return a[i]; }, pixels.b[p] + j0);
  }
  block.store(row);
}

}  // namespace bv::BAREVISION_ISA

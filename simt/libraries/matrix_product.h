// The arithmetic of the stand-in's cuBLASLt: column-major matrices of fp32, fp16 or bf16, summed in
// fp32 in the order of k, so that results don't depend on the tiles.
#pragma once
#include <cstdint>

namespace simt {

enum class Format : uint8_t { fp32, fp16, bf16 };

struct Matrix {
  const void* data;
  int64_t leading_dimension;  // elements from one column to the next
  Format format;
  bool transposed;  // op(M) = M^T
};

// D = alpha op(A) op(B) + beta C + bias, with bias [m] added to each column.
struct MatrixProduct {
  void* d;
  Matrix a, b, c;    // D has the layout of C
  const void* bias;  // in C's format, or null
  int64_t m, n, k;
  float alpha, beta;
  bool through_d = false;  // intermediate results are rounded to D's format as well: the sum after
                           // every 16 terms, and the product before the bias

  static constexpr int64_t tile_rows = 192, tile_columns = 192;  // of D
  int64_t row_tiles() const { return (m + tile_rows - 1) / tile_rows; }
  int64_t column_tiles() const { return (n + tile_columns - 1) / tile_columns; }
  void compute_tile(int64_t row_tile, int64_t column_tile) const;

  // Bytes read from memory, each element once.
  double bytes_read() const {
    const double ab = double(m) * double(k) * bytes(a) + double(k) * double(n) * bytes(b);
    return ab + (beta != 0 ? bytes_written() : 0) + (bias ? double(m) * bytes(c) : 0);
  }
  double bytes_written() const { return double(m) * double(n) * bytes(c); }

 private:
  static double bytes(const Matrix& x) { return x.format == Format::fp32 ? 4 : 2; }
};

}  // namespace simt

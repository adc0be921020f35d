// Transposes matrices of floats, 8 x 8 elements in registers.
#pragma once
#include <cstddef>
#include <cstring>

namespace bv::BAREVISION_ISA {

using Eight = float __attribute__((vector_size(32)));

// out[c, r] = inp[r, c] for 8 rows and columns; strides in floats
static inline void transpose_8x8(float* out, ptrdiff_t out_stride, const float* inp,
                                 ptrdiff_t inp_stride) {
  Eight a[8], b[8];
  for (int i = 0; i < 8; ++i) memcpy(&a[i], inp + i * inp_stride, sizeof(Eight));
  for (int i = 0; i < 8; i += 2) {  // pairs of rows, interleaved within 16 bytes
    b[i] = __builtin_shufflevector(a[i], a[i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
    b[i + 1] = __builtin_shufflevector(a[i], a[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
  }
  for (int i = 0; i < 8; i += 4)  // fours of rows
    for (int j = 0; j < 2; ++j) {
      a[i + 2 * j] = __builtin_shufflevector(b[i + j], b[i + j + 2], 0, 1, 8, 9, 4, 5, 12, 13);
      a[i + 2 * j + 1] =
          __builtin_shufflevector(b[i + j], b[i + j + 2], 2, 3, 10, 11, 6, 7, 14, 15);
    }
  for (int i = 0; i < 4; ++i) {
    b[i] = __builtin_shufflevector(a[i], a[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
    b[i + 4] = __builtin_shufflevector(a[i], a[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
  }
  for (int i = 0; i < 8; ++i) memcpy(out + i * out_stride, &b[i], sizeof(Eight));
}

// out[c, r] = inp[r, c]; strides in floats
static inline void transpose_tile(float* out, ptrdiff_t out_stride, const float* inp,
                                  ptrdiff_t inp_stride, int rows, int columns) {
  const int rows8 = rows / 8 * 8, columns8 = columns / 8 * 8;
  // 8 rows in the outer loop: their lines stay cached even if the stride maps them to one set
  for (int r = 0; r < rows8; r += 8)
    for (int c = 0; c < columns8; c += 8)
      transpose_8x8(out + c * out_stride + r, out_stride, inp + r * inp_stride + c, inp_stride);
  for (int c = 0; c < columns; ++c)
    for (int r = c < columns8 ? rows8 : 0; r < rows; ++r)
      out[c * out_stride + r] = inp[r * inp_stride + c];
}

}  // namespace bv::BAREVISION_ISA

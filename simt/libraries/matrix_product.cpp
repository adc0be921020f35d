// A tile of D is summed in a buffer of its own, 256 terms of k at a time. The operands' parts are
// converted to floats and packed term by term, A in panels of 16 rows and B in panels of 6 columns.
// The product of two panels is kept in 12 vector registers (Goto, van de Geijn 2008).
#include "simt/libraries/matrix_product.h"

#include <immintrin.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "simt/device/tensor_cores.h"

namespace simt {
namespace {

using float8 = float __attribute__((vector_size(32)));
constexpr int width = 8, strip_rows = 16, strip_columns = 6;
constexpr int64_t terms = 256;  // of k at a time: a panel of each operand stays in L1
constexpr int64_t terms_of_mma = 16;

// ---- Formats ------------------------------------------------------------------------------------
float8 widen8(const uint16_t* from, Format format) {
  __m128i bits;
  std::memcpy(&bits, from, sizeof bits);
  if (format == Format::fp16) return float8(_mm256_cvtph_ps(bits));
  return float8(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}

// Rounds to nearest even; every NaN becomes the one NaN that CUDA returns.
void narrow8(uint16_t* to, float8 x, Format format) {
  __m128i bits;
  if (format == Format::fp16) {
    bits = _mm256_cvtps_ph(__m256(x), _MM_FROUND_TO_NEAREST_INT);
  } else {
    const __m256i u = __m256i(x), one = _mm256_set1_epi32(1);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), one);
    const __m256i rounded = _mm256_srli_epi32(
        _mm256_add_epi32(u, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7FFF))), 16);
    bits = _mm_packus_epi32(_mm256_castsi256_si128(rounded), _mm256_extracti128_si256(rounded, 1));
  }
  const __m256i number = __m256i(_mm256_cmp_ps(__m256(x), __m256(x), _CMP_ORD_Q));
  const __m128i is_number =
      _mm_packs_epi32(_mm256_castsi256_si128(number), _mm256_extracti128_si256(number, 1));
  bits = _mm_blendv_epi8(_mm_set1_epi16(0x7FFF), bits, is_number);
  std::memcpy(to, &bits, sizeof bits);
}

const void* element(const void* data, Format format, int64_t i) {
  return static_cast<const char*>(data) + i * (format == Format::fp32 ? 4 : 2);
}

// to[0 .. n) = the elements of data from `first` on
void widen(float* to, const void* data, Format format, int64_t first, int64_t n) {
  const void* from = element(data, format, first);
  if (format == Format::fp32) {
    std::memcpy(to, from, sizeof(float) * n);
    return;
  }
  const auto* words = static_cast<const uint16_t*>(from);
  int64_t i = 0;
  for (; i + width <= n; i += width) {
    const float8 x = widen8(words + i, format);
    std::memcpy(to + i, &x, sizeof x);
  }
  if (i < n) {
    uint16_t rest[width] = {};
    std::memcpy(rest, words + i, sizeof(uint16_t) * (n - i));
    const float8 x = widen8(rest, format);
    std::memcpy(to + i, &x, sizeof(float) * (n - i));
  }
}

void narrow(void* data, Format format, int64_t first, const float* from, int64_t n) {
  void* to = const_cast<void*>(element(data, format, first));
  if (format == Format::fp32) {
    std::memcpy(to, from, sizeof(float) * n);
    return;
  }
  for (int64_t i = 0; i < n; i += width) {
    const int64_t in = std::min<int64_t>(width, n - i);
    float8 x{};
    uint16_t words[width];
    std::memcpy(&x, from + i, sizeof(float) * in);
    narrow8(words, x, format);
    std::memcpy(static_cast<uint16_t*>(to) + i, words, sizeof(uint16_t) * in);
  }
}

// Rounds x[0 .. n) to the format; n is a multiple of `width`.
void round_to(float* x, Format format, int64_t n) {
  uint16_t words[width];
  for (int64_t i = 0; i < n; i += width) {
    float8 eight;
    std::memcpy(&eight, x + i, sizeof eight);
    narrow8(words, eight, format);
    eight = widen8(words, format);
    std::memcpy(x + i, &eight, sizeof eight);
  }
}

// ---- Packing ------------------------------------------------------------------------------------
// to[p * strip + i] = element (first + i) of term first_term + p, 0 if i >= count. In the matrix,
// the n terms are contiguous if `along_terms`, otherwise the panel's `count` elements.
template <int strip>
void pack(float* to, const Matrix& matrix, bool along_terms, int64_t first, int64_t count,
          int64_t first_term, int64_t n) {
  if (count < strip) std::fill_n(to, n * strip, 0.0f);
  if (along_terms) {
    float row[terms];
    for (int64_t i = 0; i < count; ++i) {
      widen(row, matrix.data, matrix.format, (first + i) * matrix.leading_dimension + first_term,
            n);
      for (int64_t p = 0; p < n; ++p) to[p * strip + i] = row[p];
    }
  } else {
    for (int64_t p = 0; p < n; ++p)
      widen(to + p * strip, matrix.data, matrix.format,
            (first_term + p) * matrix.leading_dimension + first, count);
  }
}

// ---- The product --------------------------------------------------------------------------------
// Vector `v` of the panels' product: rows v % 2 * 8 ..., column v / 2.
template <int... v>
[[gnu::always_inline]] inline void add_term(float8 (&sum)[sizeof...(v)], const float8* a,
                                            const float* b, std::integer_sequence<int, v...>) {
  const float8 low = a[0], high = a[1];
  ((sum[v] += (v % 2 ? high : low) * b[v / 2]), ...);
}
template <int... v>
[[gnu::always_inline]] inline void load(float8 (&sum)[sizeof...(v)], const float8* c,
                                        int64_t stride, std::integer_sequence<int, v...>) {
  ((sum[v] = c[v / 2 * stride + v % 2]), ...);
}
template <int... v>
[[gnu::always_inline]] inline void store(const float8 (&sum)[sizeof...(v)], float8* c,
                                         int64_t stride, std::integer_sequence<int, v...>) {
  ((c[v / 2 * stride + v % 2] = sum[v]), ...);
}

// c (16 rows, 6 columns `stride` vectors apart) += the product of two panels of n terms
void multiply_strips(float8* c, int64_t stride, const float8* a, const float* b, int64_t n) {
  constexpr int vectors = strip_rows / width * strip_columns;
  constexpr std::make_integer_sequence<int, vectors> all;
  float8 sum[vectors];
  load(sum, c, stride, all);
  for (int64_t p = 0; p < n; ++p, a += strip_rows / width, b += strip_columns)
    add_term(sum, a, b, all);
  store(sum, c, stride, all);
}

// multiply_strips() with the rounding of tensor cores. `terms` and terms_of_mma are multiples of
// their block of products, so no block is split between two panels.
void multiply_strips_truncating(float8* c, int64_t stride, const float8* a, const float* b,
                                int64_t n) {
  const auto* const a_floats = reinterpret_cast<const float*>(a);
  for (int column = 0; column < strip_columns; ++column)
    for (int row = 0; row < strip_rows; ++row) {
      float& sum = reinterpret_cast<float*>(c + column * stride)[row];
      sum = truncated_sum(sum, int(n), [&](int p) {
        return double{a_floats[p * strip_rows + row]} * b[p * strip_columns + column];
      });
    }
}

int64_t strips(int64_t count, int64_t strip) { return (count + strip - 1) / strip; }

std::unique_ptr<float8[]> buffer(int64_t floats) {
  return std::make_unique_for_overwrite<float8[]>(strips(floats, width));
}

}  // namespace

void MatrixProduct::compute_tile(int64_t row_tile, int64_t column_tile) const {
  const int64_t row = row_tile * tile_rows, rows = std::min(tile_rows, m - row);
  const int64_t column = column_tile * tile_columns, columns = std::min(tile_columns, n - column);
  const int64_t row_strips = strips(rows, strip_rows),
                column_strips = strips(columns, strip_columns);
  const int64_t height = row_strips * strip_rows;  // of the buffers' columns
  const auto sums = buffer(height * column_strips * strip_columns);
  const auto packed_a = buffer(height * terms);
  const auto packed_b = buffer(column_strips * strip_columns * terms);
  auto* const b_floats = reinterpret_cast<float*>(packed_b.get());
  std::memset(sums.get(), 0, sizeof(float) * height * column_strips * strip_columns);

  const bool truncates = tensor_cores.block && a.format != Format::fp32;
  const bool through_16_bits = through_d && c.format != Format::fp32;
  const int64_t at_once = through_16_bits ? terms_of_mma : terms;
  for (int64_t term = 0; term < k; term += at_once) {
    const int64_t now = std::min(at_once, k - term);
    const int64_t a_vectors = now * strip_rows / width, b_elements = now * strip_columns;
    for (int64_t i = 0; i < row_strips; ++i)
      pack<strip_rows>(reinterpret_cast<float*>(packed_a.get() + i * a_vectors), a, a.transposed,
                       row + i * strip_rows, std::min<int64_t>(strip_rows, rows - i * strip_rows),
                       term, now);
    for (int64_t j = 0; j < column_strips; ++j)
      pack<strip_columns>(b_floats + j * b_elements, b, !b.transposed, column + j * strip_columns,
                          std::min<int64_t>(strip_columns, columns - j * strip_columns), term, now);
    for (int64_t j = 0; j < column_strips; ++j)
      for (int64_t i = 0; i < row_strips; ++i)
        (truncates ? multiply_strips_truncating : multiply_strips)(
            sums.get() + (j * strip_columns * height + i * strip_rows) / width, height / width,
            packed_a.get() + i * a_vectors, b_floats + j * b_elements, now);
    if (through_16_bits)
      round_to(reinterpret_cast<float*>(sums.get()), c.format,
               height * column_strips * strip_columns);
  }

  float bias_row[tile_rows] = {}, before[tile_rows] = {};
  if (bias) widen(bias_row, bias, c.format, row, rows);
  for (int64_t j = 0; j < columns; ++j) {
    float* out = reinterpret_cast<float*>(sums.get()) + j * height;
    const int64_t at = (column + j) * c.leading_dimension + row;
    if (beta != 0) widen(before, c.data, c.format, at, rows);
    for (int64_t i = 0; i < rows; ++i) out[i] = alpha * out[i] + beta * before[i] + bias_row[i];
    narrow(d, c.format, at, out, rows);
  }
}

}  // namespace simt

#include "simt/hopper/wgmma_operands.h"

#include <immintrin.h>

#include <algorithm>
#include <cstring>

namespace simt {
namespace {

using uint16x8 = uint16_t __attribute__((vector_size(16)));

uint16x8 load(const unsigned char* p) {
  uint16x8 x;
  std::memcpy(&x, p, 16);
  return x;
}

void store_floats(float* to, uint16x8 x, bool is_half) {
  const auto bits = reinterpret_cast<__m128i>(x);
  _mm256_storeu_ps(
      to, is_half ? _mm256_cvtph_ps(bits)
                  : _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16)));
}

// x[i][j] becomes x[j][i], by interleaving row i with row i + 4 three times.
void transpose(uint16x8 (&x)[8]) {
  for (int round = 0; round < 3; ++round) {
    uint16x8 y[8];
    for (int i = 0; i < 4; ++i) {
      y[2 * i] = __builtin_shuffle(x[i], x[i + 4], uint16x8{0, 8, 1, 9, 2, 10, 3, 11});
      y[2 * i + 1] = __builtin_shuffle(x[i], x[i + 4], uint16x8{4, 12, 5, 13, 6, 14, 7, 15});
    }
    std::memcpy(x, y, sizeof x);
  }
}

}  // namespace

MatrixDescriptor MatrixDescriptor::of(uint64_t bits) {
  const auto field = [bits](int first, unsigned mask) { return unsigned(bits >> first) & mask; };
  constexpr unsigned row_bytes[]{16, 128, 64, 32};
  constexpr uint64_t known = 0x3FFF | 0x3FFFull << 16 | 0x3FFFull << 32 | 7ull << 49 | 3ull << 62;
  return {.start = field(0, 0x3FFF) * 16,
          .leading = field(16, 0x3FFF) * 16,
          .stride = field(32, 0x3FFF) * 16,
          .base = field(49, 7),
          .row_bytes = row_bytes[field(62, 3)],
          .has_unknown_bits = (bits & ~known) != 0};
}

std::array<uint32_t, 2 * wgmma_most_columns> WgmmaOperand::pieces() const {
  const MatrixDescriptor& d = descriptor;
  const unsigned row = d.row_bytes, per_row = row / 16;
  const bool plain = row == 16;
  std::array<uint32_t, 2 * wgmma_most_columns> at;
  uint32_t* next = at.data();
  if (is_mn_major) {
    // The next eight elements along MN are the next piece of the row or, after its last piece, LBO
    // bytes away; the next eight along K are SBO bytes away. Without a swizzle, LBO and SBO are
    // exchanged.
    const uint32_t across = plain ? d.stride : d.leading, down = plain ? d.leading : d.stride;
    for (unsigned j = 0; j < size / 8; ++j)
      for (unsigned k = 0; k < wgmma_k; ++k)
        *next++ = d.swizzled(d.start + j % per_row * 16 + j / per_row * across + k % 8 * row +
                             k / 8 * down);
  } else {
    for (unsigned group = 0; group < size / 8; ++group)
      for (unsigned k = 0; k < 2; ++k)
        for (unsigned r = 0; r < 8; ++r)
          *next++ = d.swizzled(d.start + group * d.stride + r * row + k * (plain ? d.leading : 16));
  }
  return at;
}

WgmmaOperand::Ranges WgmmaOperand::ranges() const {
  const MatrixDescriptor& d = descriptor;
  const uint32_t first = d.start / d.row_bytes * d.row_bytes, bytes = 8 * d.row_bytes;
  const bool plain = d.row_bytes == 16;
  // Blocks of 8 rows, `along` by `along_k`, with a stride for each direction.
  const unsigned per_row = is_mn_major ? d.row_bytes / 16 : 1;
  const unsigned along = (size / 8 + per_row - 1) / per_row, along_k = is_mn_major || plain ? 2 : 1;
  const uint32_t step = is_mn_major && !plain ? d.leading : d.stride,
                 k_step = is_mn_major && !plain ? d.stride : d.leading;
  Ranges r;
  for (unsigned i = 0; i < along; ++i)
    for (unsigned k = 0; k < along_k; ++k) {
      const uint32_t begin = first + i * step + k * k_step;
      r.at[r.count++] = {begin, begin + bytes};
    }
  std::sort(r.at.data(), r.at.data() + r.count, [](Range a, Range b) { return a.begin < b.begin; });
  unsigned merged = 0;  // the last range that stays
  for (unsigned i = 1; i < r.count; ++i)
    if (r.at[merged].end < r.at[i].begin)
      r.at[++merged] = r.at[i];
    else
      r.at[merged].end = std::max(r.at[merged].end, r.at[i].end);
  r.count = merged + 1;
  return r;
}

void unpack_operand(const WgmmaOperand& operand, const unsigned char* const* at, bool is_half,
                    float* out, unsigned stride) {
  for (unsigned block = 0; block < operand.size / 8; ++block)
    for (unsigned k = 0; k < wgmma_k; k += 8, at += 8) {
      uint16x8 x[8];
      for (int i = 0; i < 8; ++i) x[i] = load(at[i]);
      if (!operand.is_mn_major) transpose(x);
      for (unsigned i = 0; i < 8; ++i)
        store_floats(out + (k + i) * stride + 8 * block, x[i], is_half);
    }
}

void unpack_registers(const uint32_t (&a)[32][4], bool is_half, float* out, unsigned stride) {
  uint16_t rows[16][16];
  for (unsigned i = 0; i < 32; ++i)
    for (unsigned j = 0; j < 4; ++j)
      std::memcpy(&rows[i / 4 + j % 2 * 8][i % 4 * 2 + j / 2 * 8], &a[i][j], 4);
  for (unsigned row = 0; row < 16; row += 8)
    for (unsigned k = 0; k < wgmma_k; k += 8) {
      uint16x8 x[8];
      for (unsigned i = 0; i < 8; ++i) std::memcpy(&x[i], &rows[row + i][k], 16);
      transpose(x);
      for (unsigned i = 0; i < 8; ++i) store_floats(out + (k + i) * stride + row, x[i], is_half);
    }
}

unsigned bank_conflicts(const WgmmaOperand& operand) {
  const auto at = operand.pieces();
  unsigned conflicts = 0;
  for (unsigned first = 0; first < 2 * operand.size; first += 8) {
    unsigned turns[8]{};  // of each group of four banks
    for (unsigned i = first; i < first + 8; ++i) ++turns[at[i] / 16 % 8];
    conflicts += *std::max_element(turns, turns + 8) - 1;
  }
  return conflicts;
}

}  // namespace simt

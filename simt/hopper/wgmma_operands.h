// Operands of wgmma in shared memory: a matrix descriptor's fields, and the bytes read by it. The
// descriptor's fields and the canonical layouts are those of the PTX ISA ("Asynchronous Warpgroup
// Level Matrix Shared Memory Layout", "Matrix Descriptor") and of CuTe's make_gmma_desc. Elements
// have 16 bits; they are read in pieces of 8, contiguous along K or along MN (M of A, N of B).
#pragma once
#include <array>
#include <cstdint>

#include "simt/hopper/box.h"

namespace simt {

constexpr unsigned wgmma_k = 16, wgmma_rows = 64, wgmma_most_columns = 256;

struct MatrixDescriptor {
  uint32_t start, leading, stride;  // bytes
  unsigned base;                    // the row of 128 bytes at which the swizzle's pattern starts
  unsigned row_bytes;               // 16 without a swizzle, 32, 64, 128
  bool has_unknown_bits;            // which hardware requires to be 0

  static MatrixDescriptor of(uint64_t bits);
  uint32_t swizzled(uint32_t address) const {
    return static_cast<uint32_t>(simt::swizzled(address, row_bytes, base));
  }
};

// An operand [size, 16]: MN, K.
struct WgmmaOperand {
  MatrixDescriptor descriptor;
  unsigned size;
  bool is_mn_major;

  // Shared addresses of its 2 * size pieces: K-major [size / 8][K / 8][8 of MN], MN-major
  // [size / 8][16 of K]. Eight consecutive pieces are read at once.
  std::array<uint32_t, 2 * wgmma_most_columns> pieces() const;
  // The bytes that it reads, in whole rows of the swizzle; adjacent ranges are merged.
  struct Range {
    uint32_t begin, end;
  };
  struct Ranges {
    std::array<Range, wgmma_most_columns / 4> at;
    unsigned count = 0;
    const Range* begin() const { return at.data(); }
    const Range* end() const { return at.data() + count; }
    const Range& back() const { return at[count - 1]; }
  };
  Ranges ranges() const;
};

// Converts the pieces to floats, out[K][stride], MN along the row. at[i] is the address of piece i.
void unpack_operand(const WgmmaOperand&, const unsigned char* const* at, bool is_half, float* out,
                    unsigned stride);
// Converts the 16 rows of A that a warp holds in registers to out[K][stride]: lane i's four pairs
// are (row i/4, columns i%4*2 and the next), the pair 8 rows below, and both pairs 8 columns to the
// right.
void unpack_registers(const uint32_t (&a)[32][4], bool is_half, float* out, unsigned stride);

// Shared memory reads eight pieces of 16 bytes at a time, in one turn if their banks differ.
// Returns the number of additional turns for all pieces.
unsigned bank_conflicts(const WgmmaOperand&);

// d[16][n] += a[K][a_stride] * b[K][b_stride], summed as simt::tensor_cores specifies.
void wgmma_product(float* d, unsigned n, const float* a, unsigned a_stride, const float* b,
                   unsigned b_stride);

}  // namespace simt

// What the convolutions on tensor cores have in common: pixels from numbers, and rows of 16-byte
// chunks in shared memory.
#pragma once
#include "kernels/pack.cuh"

namespace bv::BAREVISION_GPU {

// m / d for 0 <= m < 2^31 by a multiplication.
struct Divisor {
  uint32_t factor;
  int shift;

  explicit Divisor(int d) : shift(31) {
    while (int64_t{1} << (shift - 31) < d) ++shift;
    factor = static_cast<uint32_t>(((uint64_t{1} << shift) + d - 1) / d);
  }
  __device__ int divide(int m) const {
    return static_cast<int>(static_cast<uint64_t>(factor) * static_cast<uint32_t>(m) >> shift);
  }
};

// Chunk c (16 bytes) of a row lies where the c-th, exclusive or with some bits of the row's number,
// would: the eight rows that an ldmatrix reads at the same c then lie in different banks. In bytes.
template <int chunks>
__device__ constexpr int swizzled(int row, int chunk) {
  return (row * chunks + (chunk ^ (chunks >= 8 ? row % 8 : row / 2 % chunks))) * 16;
}

__device__ inline void* at_byte(void* p, int bytes) { return static_cast<char*>(p) + bytes; }
__device__ inline const void* at_byte(const void* p, int bytes) {
  return static_cast<const char*>(p) + bytes;
}

}  // namespace bv::BAREVISION_GPU

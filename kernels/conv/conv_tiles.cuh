// Rows of 16-byte chunks in shared memory, for the convolutions on tensor cores.
#pragma once
#include "kernels/conv/conv_geometry.cuh"

namespace bv::BAREVISION_GPU {

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

// The XOR swizzle of 16-byte chunks in shared memory.
#pragma once
#include "kernels/cuda/launch.cuh"

namespace bv::BAREVISION_GPU {

// The index of chunk c of a row of `chunks`: stored at c ^ (row % 8), so that the 8 rows of an
// ldmatrix fall into different banks. Rows of fewer than 8 chunks share banks by twos.
template <int chunks>
__device__ constexpr int swizzled_chunk(int row, int c) {
  return row * chunks + (c ^ (chunks >= 8 ? row % 8 : row / 2 % chunks));
}

}  // namespace bv::BAREVISION_GPU

// Building blocks of the products on tensor cores: swizzled tiles of 16-bit elements in shared
// memory, the pipeline of copies that fills them, and a warp's part of a matrix product.
#pragma once
#include "kernels/cuda/ptx.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/gemm/conv_geometry.cuh"

namespace bv::BAREVISION_GPU {

// Byte offset of chunk c (16 bytes) in a row of `chunks` chunks: it is stored at c ^ (row % 8), so
// that the 8 rows of an ldmatrix fall into different banks. If a row has fewer than 8 chunks, the
// rows that together fill the 128 bytes of all banks have the same swizzle.
template <int chunks>
__device__ constexpr int swizzled_byte(int row, int c) {
  return (row * chunks + (c ^ (chunks >= 8 ? row % 8 : row * chunks / 8 % chunks))) * 16;
}

__device__ inline void* at_byte(void* p, int bytes) { return static_cast<char*>(p) + bytes; }
__device__ inline const void* at_byte(const void* p, int bytes) {
  return static_cast<const char*>(p) + bytes;
}

// Divides the copying of a tile, whose rows are `chunks` wide, among a block's threads: each
// thread copies one chunk of every `at_once`-th row.
template <int threads, int chunks>
struct RowCopies {
  static constexpr int at_once = threads / chunks;
  static_assert(at_once % 8 == 0, "the swizzle repeats from row to row of a thread");

  __device__ static int row() { return static_cast<int>(threadIdx.x) / chunks; }
  __device__ static int chunk() { return static_cast<int>(threadIdx.x) % chunks; }
  // Byte offset of this thread's chunk of its k-th row.
  __device__ static int place(int k) {
    return swizzled_byte<chunks>(row(), chunk()) + k * at_once * chunks * 16;
  }
};

// Calls load(step, stage) and then multiply(stage) for each step of [first, last) in turn. Copies
// run `stages` - 1 steps ahead. The caller synchronises before it reuses the stages.
template <class Stage, int stages, class Load, class Multiply>
__device__ void pipeline(Stage (&stage)[stages], int first, int last, Load load,
                         Multiply multiply) {
  const auto start = [&](int step) {
    if (step < last) load(step, stage[(step - first) % stages]);
    cp_async_commit();
  };
#pragma unroll
  for (int i = 0; i < stages - 1; ++i) start(first + i);
  for (int step = first; step < last; ++step) {
    cp_async_wait<stages - 2>();
    __syncthreads();  // all threads have copied this stage and multiplied the previous one
    start(step + stages - 1);
    multiply(stage[(step - first) % stages]);
  }
}

// Whether the tensor-core kernels support the groups; and the width of blocks of channels that hold
// whole groups: the smallest that mma's fragments allow.
inline bool has_diagonal_blocks(const ConvShape& s) {
  const int channels = s.C / s.groups;
  return s.C == s.K && (channels == 4 || channels == 8 || channels == 16 || channels == 32);
}
inline int diagonal_width(int channels) { return channels > 16 ? 32 : 16; }

// A warp's part of an m x n tile of sums, as mma's fragments: of the 16x8 sums [i][j], a lane holds
// rows i * 16 + lane/4 and i * 16 + lane/4 + 8, columns j * 8 + lane%4*2 and the next.
template <class T, int m, int n, int warps_m, int warps_n>
struct WarpTile {
  static constexpr int rows = m / warps_m, columns = n / warps_n;
  static constexpr int ms = rows / 16, ns = columns / 8;

  float sum[ms][ns][4] = {};

  __device__ static int row() { return threadIdx.x / warp_size % warps_m * rows; }
  __device__ static int column() { return threadIdx.x / warp_size / warps_m % warps_n * columns; }

  // sums += a product of depth 16 * steps. load_a(a, k, i) loads the fragment of rows i * 16,
  // load_b(b, k, j) the two fragments of columns j * 8 and (j + 1) * 8, at depth k * 16.
  template <int steps, class LoadA, class LoadB>
  __device__ void multiply(LoadA load_a, LoadB load_b) {
#pragma unroll
    for (int k = 0; k < steps; ++k) {
      uint32_t a[ms][4];
#pragma unroll
      for (int i = 0; i < ms; ++i) load_a(a[i], k, i);
#pragma unroll
      for (int j = 0; j < ns; j += 2) {
        uint32_t b[4];
        load_b(b, k, j);
#pragma unroll
        for (int i = 0; i < ms; ++i) {
          mma_m16n8k16<T>(sum[i][j], a[i], b[0], b[1]);
          mma_m16n8k16<T>(sum[i][j + 1], a[i], b[2], b[3]);
        }
      }
    }
  }
};

}  // namespace bv::BAREVISION_GPU

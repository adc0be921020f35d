// Shared by the tests of wgmma: operands in shared memory, in every layout.
#pragma once
#include "kernels/cuda/hopper/ptx_wgmma.cuh"
#include "tests/simt/hopper/hopper_test.h"

namespace bv::simt_gpu {

constexpr int depth = 64;  // of a tile: four wgmmas

// A tile [size, depth] of an operand, as ptx_wgmma.cuh describes it.
struct TileLayout {
  Major major;
  Swizzle swizzle;
  int size;

  int row() const { return swizzle == Swizzle::none ? 16 : 16 << int(swizzle); }  // bytes
  int panels() const {
    return major == Major::k ? depth * 2 / row() : (size * 2 + row() - 1) / row();
  }
  int panel_bytes() const { return (major == Major::k ? size : depth) * row(); }
  int bytes() const { return (panels() * panel_bytes() + 1023) / 1024 * 1024; }
  uint32_t stride() const {
    return major == Major::mn && swizzle == Swizzle::none ? panel_bytes() : 8 * row();
  }
  uint32_t leading() const {
    if (swizzle != Swizzle::none) return major == Major::k ? 16 : panel_bytes();
    return major == Major::k ? panel_bytes() : 8 * row();
  }
  // The offset of the operand of the wgmma that begins at k.
  int step(int k) const {
    return major == Major::k ? k * 2 / row() * panel_bytes() + k * 2 % row() : k * row();
  }
  // The offset of an element of the tile.
  int offset(int mn, int k) const {
    const int along = major == Major::k ? k : mn, across = major == Major::k ? mn : k;
    const int at = along * 2 / row() * panel_bytes() + across * row() + along * 2 % row();
    return at ^ ((at >> 7 & (row() / 16 - 1)) << 4);
  }
  uint64_t descriptor(const unsigned char* tile, int k) const {
    return wgmma_advance(wgmma_descriptor(tile, swizzle, stride(), leading()), uint32_t(step(k)));
  }
};

// All threads of the block store the tile's elements from [size, depth] without gaps.
template <class T>
void store_tile(unsigned char* tile, const TileLayout& layout, const T* from) {
  for (int i = int(threadIdx.x); i < layout.size * depth; i += int(blockDim.x))
    std::memcpy(tile + layout.offset(i / depth, i % depth), from + i, sizeof(T));
}

// Stores a warpgroup's accumulators at their rows and columns of out.
template <size_t n>
void store_sums(float* out, const float (&d)[n]) {
  const int t = int(threadIdx.x % 128), row = t / 32 * 16 + t / 4 % 8, column = t % 4 * 2;
  for (int i = 0; i < int(n); ++i)
    out[(row + i / 2 % 2 * 8) * int(2 * n) + i / 4 * 8 + column + i % 2] = d[i];
}

// Small integers, whose products' sums are exact.
template <class T>
std::vector<T> integers(size_t count, unsigned seed) {
  std::vector<T> x(count);
  for (T& value : x)
    value = from_float<T>(float(int((seed = seed * 1664525u + 1013904223u) >> 16) % 9 - 4));
  return x;
}

// a[64][k] * b[n][k]
template <class T>
std::vector<float> plain_product(const std::vector<T>& a, const std::vector<T>& b, int n, int k) {
  std::vector<float> x(a.size()), y(b.size()), d(size_t(64 * n));
  for (size_t i = 0; i < a.size(); ++i) x[i] = to_float(a[i]);
  for (size_t i = 0; i < b.size(); ++i) y[i] = to_float(b[i]);
  for (int i = 0; i < 64; ++i)
    for (int j = 0; j < n; ++j) {
      float sum = 0;
      for (int l = 0; l < k; ++l) sum += x[size_t(i * k + l)] * y[size_t(j * k + l)];
      d[size_t(i * n + j)] = sum;
    }
  return d;
}

}  // namespace bv::simt_gpu

// CUDA's keywords and vector types for g++: those that this project uses.
#pragma once
#include <cstddef>
#include <cstdint>

#define __global__
#define __device__
#define __host__
#define __managed__
#define __forceinline__ inline
#define __grid_constant__
#define __launch_bounds__(...)

// An inline namespace: used like CUDA's global names but mangled differently, so that objects of
// g++ and of nvcc can be linked into one program.
inline namespace simt_cuda {

struct uint3 {
  unsigned x, y, z;
};
struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};
// Aligned as on the device: a misaligned vector access is an error here, too.
struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(16) int4 {
  int x, y, z, w;
};

}  // namespace simt_cuda

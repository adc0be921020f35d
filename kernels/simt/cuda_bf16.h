// CUDA's __nv_bfloat16 for g++. Rounds to nearest even; like CUDA's, it makes a single NaN.
#pragma once
#include <bit>

#include "kernels/simt/types.h"

inline namespace simt_cuda {

struct __nv_bfloat16 {
  uint16_t bits;
};
inline float __bfloat162float(__nv_bfloat16 b) {
  return std::bit_cast<float>(uint32_t{b.bits} << 16);
}
inline __nv_bfloat16 __float2bfloat16(float x) {
  if (x != x) return {0x7FFF};  // rounding could carry a NaN into infinity
  const uint32_t u = std::bit_cast<uint32_t>(x);
  return {static_cast<uint16_t>((u + 0x7FFF + (u >> 16 & 1)) >> 16)};
}

}  // namespace simt_cuda

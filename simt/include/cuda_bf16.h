// CUDA's bfloat16 for g++: like cuda_fp16.h.
#pragma once
#include <bit>

#include "simt/device/types.h"

inline namespace simt_cuda {

struct __nv_bfloat16 {
  enum class Bits : uint16_t {} bits;  // which no number becomes by itself
};
struct alignas(4) __nv_bfloat162 {
  __nv_bfloat16 x, y;
};

inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 b) {
  return std::bit_cast<unsigned short>(b);
}
inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits) {
  return std::bit_cast<__nv_bfloat16>(bits);
}
inline float __bfloat162float(__nv_bfloat16 b) {
  return std::bit_cast<float>(static_cast<uint32_t>(b.bits) << 16);
}
inline __nv_bfloat16 __float2bfloat16(float x) {
  if (x != x) return __ushort_as_bfloat16(0x7FFF);  // rounding could carry a NaN into infinity
  const uint32_t u = std::bit_cast<uint32_t>(x);
  return __ushort_as_bfloat16(static_cast<unsigned short>((u + 0x7FFF + (u >> 16 & 1)) >> 16));
}
inline __nv_bfloat16 __float2bfloat16_rn(float x) { return __float2bfloat16(x); }
inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y) {
  return {__float2bfloat16(x), __float2bfloat16(y)};
}
inline float2 __bfloat1622float2(__nv_bfloat162 b) {
  return {__bfloat162float(b.x), __bfloat162float(b.y)};
}

inline __nv_bfloat16 __hadd(__nv_bfloat16 a, __nv_bfloat16 b) {
  return __float2bfloat16(__bfloat162float(a) + __bfloat162float(b));
}
inline __nv_bfloat16 __hsub(__nv_bfloat16 a, __nv_bfloat16 b) {
  return __float2bfloat16(__bfloat162float(a) - __bfloat162float(b));
}
inline __nv_bfloat16 __hmul(__nv_bfloat16 a, __nv_bfloat16 b) {
  return __float2bfloat16(__bfloat162float(a) * __bfloat162float(b));
}

}  // namespace simt_cuda

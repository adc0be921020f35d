// CUDA's half precision for g++: the part this project uses. Rounds to nearest even and, as CUDA
// does, turns every NaN into the same one; tests/numerics/conversions_test.cpp compares it bit by
// bit with the toolkit's.
#pragma once
#include <bit>

#include "simt/device/types.h"

inline namespace simt_cuda {

struct __half {
  _Float16 value;
};
struct alignas(4) __half2 {
  __half x, y;
};

inline float __half2float(__half h) {
  // Tests the bits: g++ turns x == x in float into a comparison of _Float16, a call to libgcc.
  const bool is_nan = (std::bit_cast<uint16_t>(h) & 0x7FFF) > 0x7C00;
  return is_nan ? std::bit_cast<float>(0x7FFFFFFFu) : static_cast<float>(h.value);
}
inline __half __float2half(float x) {
  return {x == x ? static_cast<_Float16>(x) : std::bit_cast<_Float16>(uint16_t{0x7FFF})};
}
inline __half __float2half_rn(float x) { return __float2half(x); }
inline __half2 __floats2half2_rn(float x, float y) { return {__float2half(x), __float2half(y)}; }
inline float2 __half22float2(__half2 h) { return {__half2float(h.x), __half2float(h.y)}; }
inline unsigned short __half_as_ushort(__half h) { return std::bit_cast<unsigned short>(h); }
inline __half __ushort_as_half(unsigned short bits) { return std::bit_cast<__half>(bits); }

// Computed in float, which has so many bits that only the last rounding matters.
inline __half __hadd(__half a, __half b) { return __float2half(__half2float(a) + __half2float(b)); }
inline __half __hsub(__half a, __half b) { return __float2half(__half2float(a) - __half2float(b)); }
inline __half __hmul(__half a, __half b) { return __float2half(__half2float(a) * __half2float(b)); }

}  // namespace simt_cuda

namespace simt {

using float8 = float __attribute__((vector_size(32)));

inline float8 half8_to_float8(const void* halves) {
#ifdef __F16C__  // one instruction, where g++ 12 generates eight
  using short8 = short __attribute__((vector_size(16)));
  return float8(__builtin_ia32_vcvtph2ps256(*static_cast<const short8*>(halves)));
#else
  float8 out;
  for (int i = 0; i < 8; ++i) out[i] = static_cast<const _Float16*>(halves)[i];
  return out;
#endif
}

}  // namespace simt

// CUDA's __half for g++. Conversions round to nearest even and, like CUDA's, know a single NaN.
#pragma once
#include <bit>

#include "kernels/simt/types.h"

inline namespace simt_cuda {

struct __half {
  _Float16 value;
};
inline float __half2float(__half h) {
  const float x = static_cast<float>(h.value);
  return x == x ? x : std::bit_cast<float>(0x7FFFFFFFu);
}
inline __half __float2half(float x) {
  return {x == x ? static_cast<_Float16>(x) : std::bit_cast<_Float16>(uint16_t{0x7FFF})};
}

}  // namespace simt_cuda

namespace simt {
using float8 = float __attribute__((vector_size(32)));
inline float8 half8_to_float8(const void* halves) {
#ifdef __F16C__  // one instruction; g++ 12 left alone makes eight
  using short8 = short __attribute__((vector_size(16)));
  return float8(__builtin_ia32_vcvtph2ps256(*static_cast<const short8*>(halves)));
#else
  float8 out;
  for (int i = 0; i < 8; ++i) out[i] = static_cast<const _Float16*>(halves)[i];
  return out;
#endif
}
}  // namespace simt

// fp32 to 16 bits, to nearest, ties to even: the bits as kernels read them.
#pragma once
#include <bit>
#include <cstdint>

#include "kernels/kernels.h"

namespace bv {

inline uint16_t to_half(float x, DType dtype) {
  if (dtype == DType::fp16) return std::bit_cast<uint16_t>(static_cast<_Float16>(x));
  if (x != x) return 0x7FFF;  // rounding could carry a NaN into infinity
  const auto bits = std::bit_cast<uint32_t>(x);
  return static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

}  // namespace bv

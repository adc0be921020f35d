// Conversions of half precision and bfloat16 as functions of bits, in both builds: the toolkit's
// headers and the stand-in's must agree.
#pragma once
#include <array>
#include <cstdint>

namespace bv::test {

struct SixteenBits {
  const char* name;
  uint32_t (*to_float)(uint16_t);
  uint16_t (*from_float)(uint32_t);
  std::array<uint32_t, 2> (*pair_to_floats)(std::array<uint16_t, 2>);
  std::array<uint16_t, 2> (*pair_from_floats)(std::array<uint32_t, 2>);
  uint16_t (*add)(uint16_t, uint16_t);
  uint16_t (*subtract)(uint16_t, uint16_t);
  uint16_t (*multiply)(uint16_t, uint16_t);
};

}  // namespace bv::test

namespace bv::cuda_gpu {
std::array<test::SixteenBits, 2> sixteen_bits();
}
namespace bv::simt_gpu {
std::array<test::SixteenBits, 2> sixteen_bits();
}

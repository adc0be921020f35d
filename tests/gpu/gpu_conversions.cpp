// Compiled twice, like kernels/cuda/*.cpp.
#include "tests/numerics/gpu_conversions.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <bit>

namespace bv::BAREVISION_GPU {
namespace {

constexpr auto as_float = [](uint32_t bits) { return std::bit_cast<float>(bits); };
constexpr auto bits_of = [](float x) { return std::bit_cast<uint32_t>(x); };

__half half(uint16_t bits) { return __ushort_as_half(bits); }
uint16_t bits_of_half(__half h) { return __half_as_ushort(h); }
__nv_bfloat16 bfloat(uint16_t bits) { return __ushort_as_bfloat16(bits); }
uint16_t bits_of_bfloat(__nv_bfloat16 b) { return __bfloat16_as_ushort(b); }

}  // namespace

std::array<test::SixteenBits, 2> sixteen_bits() {
  using Halves = std::array<uint16_t, 2>;
  using Floats = std::array<uint32_t, 2>;
  return {
      {{.name = "__half",
        .to_float = [](uint16_t a) { return bits_of(__half2float(half(a))); },
        .from_float = [](uint32_t a) { return bits_of_half(__float2half(as_float(a))); },
        .pair_to_floats =
            [](Halves a) {
              const float2 f = __half22float2(__half2{half(a[0]), half(a[1])});
              return Floats{bits_of(f.x), bits_of(f.y)};
            },
        .pair_from_floats =
            [](Floats a) {
              const __half2 h = __floats2half2_rn(as_float(a[0]), as_float(a[1]));
              return Halves{bits_of_half(h.x), bits_of_half(h.y)};
            },
        .add = [](uint16_t a, uint16_t b) { return bits_of_half(__hadd(half(a), half(b))); },
        .subtract = [](uint16_t a, uint16_t b) { return bits_of_half(__hsub(half(a), half(b))); },
        .multiply = [](uint16_t a, uint16_t b) { return bits_of_half(__hmul(half(a), half(b))); }},
       {.name = "__nv_bfloat16",
        .to_float = [](uint16_t a) { return bits_of(__bfloat162float(bfloat(a))); },
        .from_float = [](uint32_t a) { return bits_of_bfloat(__float2bfloat16(as_float(a))); },
        .pair_to_floats =
            [](Halves a) {
              const float2 f = __bfloat1622float2(__nv_bfloat162{bfloat(a[0]), bfloat(a[1])});
              return Floats{bits_of(f.x), bits_of(f.y)};
            },
        .pair_from_floats =
            [](Floats a) {
              const __nv_bfloat162 h = __floats2bfloat162_rn(as_float(a[0]), as_float(a[1]));
              return Halves{bits_of_bfloat(h.x), bits_of_bfloat(h.y)};
            },
        .add = [](uint16_t a, uint16_t b) { return bits_of_bfloat(__hadd(bfloat(a), bfloat(b))); },
        .subtract = [](uint16_t a,
                       uint16_t b) { return bits_of_bfloat(__hsub(bfloat(a), bfloat(b))); },
        .multiply = [](uint16_t a,
                       uint16_t b) { return bits_of_bfloat(__hmul(bfloat(a), bfloat(b))); }}}};
}

}  // namespace bv::BAREVISION_GPU

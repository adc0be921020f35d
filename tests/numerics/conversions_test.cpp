// The stand-in's 16-bit types compared bit by bit with those of CUDA's own headers, which work on
// the host as well.
#include <gtest/gtest.h>

#include <bit>
#include <vector>

#include "tests/numerics/gpu_conversions.h"

namespace bv::test {
namespace {

struct Both {
  SixteenBits cuda, simt;
};

// The two types; empty if one of the builds is missing.
std::vector<Both> both() {
  std::vector<Both> types;
#if defined(BAREVISION_CUDA) && defined(BAREVISION_SIMT)
  const auto cuda = cuda_gpu::sixteen_bits(), simt = simt_gpu::sixteen_bits();
  for (size_t i = 0; i < cuda.size(); ++i) types.push_back({cuda[i], simt[i]});
#endif
  return types;
}

constexpr uint32_t all_halves = 1 << 16;

class Conversions : public testing::Test {
 protected:
  void SetUp() override {
    if (both().empty()) GTEST_SKIP() << "without the CUDA toolkit's headers";
  }
};

TEST_F(Conversions, Every16BitValueToFloat) {
  for (const auto& [cuda, simt] : both())
    for (uint32_t i = 0; i < all_halves; ++i) {
      const auto h = static_cast<uint16_t>(i), other = static_cast<uint16_t>(i * 40503 + 7);
      ASSERT_EQ(simt.to_float(h), cuda.to_float(h)) << cuda.name << ' ' << h;
      ASSERT_EQ(simt.pair_to_floats({h, other}), cuda.pair_to_floats({h, other}))
          << cuda.name << ' ' << h;
    }
}

// Every 16-bit value's float, the midpoint to the next, and the floats on either side of these; and
// every 1021st of all floats.
TEST_F(Conversions, FloatsTo16Bits) {
  for (const auto& [cuda, simt] : both()) {
    const auto is_same = [&, &cuda = cuda, &simt = simt](uint32_t f) {
      const uint32_t other = f * 2654435761u + 12345;
      return simt.from_float(f) == cuda.from_float(f) &&
             simt.pair_from_floats({f, other}) == cuda.pair_from_floats({f, other});
    };
    for (uint32_t i = 0; i < all_halves; ++i) {
      const uint32_t here = cuda.to_float(static_cast<uint16_t>(i)),
                     next = cuda.to_float(static_cast<uint16_t>(i + 1)),
                     middle = here + (next - here) / 2;
      for (const uint32_t around : {here, middle})
        for (const uint32_t f : {around - 1, around, around + 1})
          ASSERT_TRUE(is_same(f)) << cuda.name << " of the float " << std::hex << f;
    }
    for (uint64_t f = 0; f < uint64_t{1} << 32; f += 1021)
      ASSERT_TRUE(is_same(static_cast<uint32_t>(f)))
          << cuda.name << " of the float " << std::hex << f;
  }
}

TEST_F(Conversions, Arithmetic) {
  for (const auto& [cuda, simt] : both()) {
    // Zeros, ones, infinities, NaNs, the smallest and largest, and a sample of the rest.
    std::vector<uint16_t> partners{0, 0x8000, 1, 0x8001, 0x7FFF, 0xFFFF};
    for (const float x : {1.0f, -1.0f, 3.0f, 1e30f, -1e30f, 65504.0f, 0x1p-14f, 1e-7f, 1 / 3.0f})
      partners.push_back(cuda.from_float(std::bit_cast<uint32_t>(x)));
    for (uint32_t i = 1; i <= 16; ++i) partners.push_back(static_cast<uint16_t>(i * 40503));
    for (uint32_t i = 0; i < all_halves; ++i)
      for (const uint16_t b : partners) {
        const auto a = static_cast<uint16_t>(i);
        ASSERT_EQ(simt.add(a, b), cuda.add(a, b)) << cuda.name << ' ' << a << " + " << b;
        ASSERT_EQ(simt.subtract(a, b), cuda.subtract(a, b)) << cuda.name << ' ' << a << " - " << b;
        ASSERT_EQ(simt.multiply(a, b), cuda.multiply(a, b)) << cuda.name << ' ' << a << " * " << b;
      }
  }
}

}  // namespace
}  // namespace bv::test

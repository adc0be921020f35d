#include "tests/numerics/format.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

namespace bv::test {
namespace {

constexpr double inf = std::numeric_limits<double>::infinity();

uint16_t word(double v, DType dtype) {
  const std::vector<std::byte> bytes = encode({v}, dtype);
  uint16_t w;
  std::memcpy(&w, bytes.data(), 2);
  return w;
}

TEST(Format, KnownNumbers) {
  EXPECT_EQ(word(1, DType::fp16), 0x3C00);
  EXPECT_EQ(word(-2, DType::fp16), 0xC000);
  EXPECT_EQ(word(65504, DType::fp16), 0x7BFF);  // the largest
  EXPECT_EQ(word(0x1p-14, DType::fp16), 0x0400);
  EXPECT_EQ(word(0x1p-24, DType::fp16), 0x0001);
  EXPECT_EQ(word(-0.0, DType::fp16), 0x8000);
  EXPECT_EQ(word(-inf, DType::fp16), 0xFC00);
  EXPECT_EQ(word(1, DType::bf16), 0x3F80);
  EXPECT_EQ(word(-3, DType::bf16), 0xC040);
  EXPECT_EQ(word(0x1p-133, DType::bf16), 0x0001);
}

TEST(Format, TiesGoToEven) {
  EXPECT_EQ(held(1 + 0x1p-11, DType::fp16), 1);
  EXPECT_EQ(held(1 + 3 * 0x1p-11, DType::fp16), 1 + 0x1p-9);
  EXPECT_EQ(held(1 + 0x1p-11 + 0x1p-40, DType::fp16), 1 + 0x1p-10);
  EXPECT_EQ(held(257, DType::bf16), 256);
  EXPECT_EQ(held(259, DType::bf16), 260);
  EXPECT_EQ(held(0x1p-25, DType::fp16), 0);
  EXPECT_EQ(held(3 * 0x1p-25, DType::fp16), 0x1p-23);
  EXPECT_EQ(held(65519, DType::fp16), 65504);
  EXPECT_EQ(held(65520, DType::fp16), inf);
  EXPECT_EQ(held(-1e39, DType::bf16), -inf);
  EXPECT_TRUE(std::isnan(held(std::nan(""), DType::fp16)));
}

TEST(Format, HalfAnUlp) {
  EXPECT_EQ(half_ulp(1, DType::fp16), 0x1p-11);
  EXPECT_EQ(half_ulp(-1.9, DType::bf16), 0x1p-8);
  EXPECT_EQ(half_ulp(0, DType::fp16), 0x1p-25);
  EXPECT_EQ(half_ulp(1e-6, DType::fp16), 0x1p-25);
}

TEST(Format, EveryWordComesBack) {
  for (const DType dtype : {DType::fp16, DType::bf16})
    for (int w = 0; w < 0x10000; ++w) {
      const auto in = uint16_t(w);
      std::vector<std::byte> bytes(2);
      std::memcpy(bytes.data(), &in, 2);
      const double v = decode(bytes, dtype).at(0);
      if (std::isnan(v))
        EXPECT_TRUE(std::isnan(decode(encode({v}, dtype), dtype).at(0)));
      else
        EXPECT_EQ(word(v, dtype), in);
      // The compiler's own type; a bf16 is the upper half of a float.
      const double other = dtype == DType::fp16 ? double(std::bit_cast<_Float16>(in))
                                                : double(std::bit_cast<float>(uint32_t{in} << 16));
      EXPECT_TRUE(v == other || (std::isnan(v) && std::isnan(other))) << w;
    }
}

TEST(Format, AllFinite) {
  for (const DType dtype : {DType::fp32, DType::fp16, DType::bf16}) {
    const double largest = dtype == DType::fp16 ? 65504 : 0x1.FEp127;
    EXPECT_TRUE(all_finite(encode({0, 1, -largest, largest, 1e-7}, dtype), dtype));
    for (const double bad : {inf, -inf, std::nan("")})
      EXPECT_FALSE(all_finite(encode({0, 1, bad}, dtype), dtype));
  }
}

TEST(Format, RoundsAsTheCompilerDoes) {
  uint32_t state = 1;
  for (int i = 0; i < 100000; ++i) {
    state = state * 1664525u + 1013904223u;
    const float f = std::bit_cast<float>(state);
    if (std::isnan(f)) continue;
    EXPECT_EQ(held(f, DType::fp16), double(static_cast<_Float16>(f))) << f;
  }
}

}  // namespace
}  // namespace bv::test

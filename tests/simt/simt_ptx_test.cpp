// Stand-ins for approximate instructions, at the limits of fp32's normal numbers.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kernels/cuda/ptx.cuh"

namespace bv::simt_gpu {
namespace {

constexpr float smallest = 0x1p-126f, below = 0x1.fffffcp-127f, tiny = 0x1p-149f;
constexpr float infinite = std::numeric_limits<float>::infinity();

TEST(SimtPtx, Ex2FlushesSubnormalNumbers) {
  EXPECT_EQ(ex2_approx_ftz(-126), smallest);
  EXPECT_EQ(ex2_approx_ftz(-126.5f), 0);
  EXPECT_EQ(ex2_approx_ftz(-149), 0);
  EXPECT_FALSE(std::signbit(ex2_approx_ftz(-149)));
  for (const float x : {0.0f, -0.0f, tiny, -tiny, below, -below}) EXPECT_EQ(ex2_approx_ftz(x), 1);
  EXPECT_EQ(ex2_approx_ftz(-infinite), 0);
  EXPECT_EQ(ex2_approx_ftz(127), 0x1p127f);
  EXPECT_EQ(ex2_approx_ftz(128), infinite);
  EXPECT_TRUE(std::isnan(ex2_approx_ftz(NAN)));
}

TEST(SimtPtx, Lg2TakesSubnormalNumbersForZero) {
  EXPECT_EQ(lg2_approx_ftz(smallest), -126);
  for (const float x : {0.0f, -0.0f, tiny, -tiny, below, -below})
    EXPECT_EQ(lg2_approx_ftz(x), -infinite) << x;
}

TEST(SimtPtx, RcpFlushesSubnormalNumbersToZerosOfTheirSign) {
  EXPECT_EQ(rcp_approx_ftz(0x1p126f), smallest);
  EXPECT_EQ(rcp_approx_ftz(smallest), 0x1p126f);
  for (const float x : {0x1.000002p126f, 0x1p127f, infinite}) {
    EXPECT_EQ(rcp_approx_ftz(x), 0) << x;
    EXPECT_FALSE(std::signbit(rcp_approx_ftz(x))) << x;
    EXPECT_EQ(rcp_approx_ftz(-x), 0) << x;
    EXPECT_TRUE(std::signbit(rcp_approx_ftz(-x))) << x;
  }
  for (const float x : {0.0f, tiny, below}) {
    EXPECT_EQ(rcp_approx_ftz(x), infinite) << x;
    EXPECT_EQ(rcp_approx_ftz(-x), -infinite) << x;
  }
}

}  // namespace
}  // namespace bv::simt_gpu

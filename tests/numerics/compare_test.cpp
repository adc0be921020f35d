#include "tests/numerics/compare.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace bv::test {
namespace {

constexpr double inf = std::numeric_limits<double>::infinity();
constexpr double nan = std::numeric_limits<double>::quiet_NaN();

bool passes(double actual, double expected, double tolerance) {
  return compare({&actual, 1}, {&expected, 1}, {&tolerance, 1}).ok();
}

TEST(Compare, PassesUpToTheToleranceAndNoFurther) {
  EXPECT_TRUE(passes(1.0, 1.0, 0));
  EXPECT_TRUE(passes(1.5, 1.0, 0.5));
  EXPECT_TRUE(passes(0.5, 1.0, 0.5));
  EXPECT_FALSE(passes(1.5000001, 1.0, 0.5));
  EXPECT_FALSE(passes(std::nextafter(1.0, 2.0), 1.0, 0));
}

TEST(Compare, NaNFailsOnEitherSide) {
  EXPECT_FALSE(passes(nan, 1, 0.5));
  EXPECT_FALSE(passes(1, nan, 0.5));
  EXPECT_FALSE(passes(nan, nan, 0.5));
  EXPECT_FALSE(passes(1, 2, nan));
  EXPECT_FALSE(passes(nan, 1, inf));
}

TEST(Compare, InfinityEqualsItselfAlone) {
  EXPECT_TRUE(passes(inf, inf, 0));
  EXPECT_FALSE(passes(inf, -inf, 1));
  EXPECT_FALSE(passes(inf, 1, 1e300));
  EXPECT_FALSE(passes(1, inf, 1));
  EXPECT_FALSE(passes(inf, 1, inf));
}

TEST(Compare, NamesTheWorstElement) {
  const std::vector<double> expected(6, 1.0), tolerance(6, 0.25);
  std::vector<double> actual = expected;
  actual[2] = 2, actual[4] = 9;
  Comparison c = compare(actual, expected, tolerance);
  EXPECT_EQ(c.failures, 2u);
  EXPECT_EQ(c.worst, 4u);
  EXPECT_EQ(c.describe(std::vector<int>{2, 3}),
            "2 of 6 elements differ; worst [1, 1]: 9 is not 1 +- 0.25 (err / tolerance 32)");
  actual[1] = nan;
  c = compare(actual, expected, tolerance);
  EXPECT_EQ(c.failures, 3u);
  EXPECT_EQ(c.worst, 1u);
}

TEST(Compare, SizesMustAgree) {
  const std::vector<double> two(2), three(3);
  EXPECT_THROW(compare(two, three, two), std::invalid_argument);
  EXPECT_THROW(compare(two, two, three), std::invalid_argument);
}

TEST(Compare, IndexOfRowMajorTensor) {
  EXPECT_EQ(index_name(0, std::vector<int>{7}), "[0]");
  EXPECT_EQ(index_name(59, std::vector<int>{3, 4, 5}), "[2, 3, 4]");
}

}  // namespace
}  // namespace bv::test

// Moments with their errors, and numbers that track rounding: the means of the oracles.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/kernels/kernel_cases.h"

namespace bv::test {
namespace {

TEST(Oracle, ColumnMoments) {
  const Tensor m = column_moments({1, 1000, 3, 1001, 5, 1005}, 3, 2);
  EXPECT_EQ(values_of(m), (Values{3, 1002, 8.0 / 3, 14.0 / 3}));
  // The predicted error covers the two-pass sums, Welford's algorithm and sums shifted by the first
  // row, and rejects unshifted sums of squares.
  TestValues random(14);
  for (const int rows : {2, 50, 1000}) {
    const Values x = random.normal(size_t(rows), 300);
    const float n = float(rows), first = float(x[0]);
    float sum = 0, squares = 0, less = 0, less_squares = 0, mean = 0, m2 = 0, of_squares = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      const float v = float(x[i]), off = v - mean, d = v - first;
      sum += v, squares += v * v, less += d, less_squares += d * d;
      mean += off / float(i + 1), m2 += off * (v - mean);
    }
    for (const double v : x) of_squares += (float(v) - sum / n) * (float(v) - sum / n);
    const Tensor known = column_moments(x, rows, 1);
    const auto deviations = [&](size_t which, float found) {
      return std::fabs(found - known[which].value) / std::sqrt(known[which].variance);
    };
    for (const float found : {sum / n, mean, first + less / n}) EXPECT_LT(deviations(0, found), 3);
    for (const float found : {of_squares, m2, less_squares - less * less / n})
      EXPECT_LT(deviations(1, found / n), 3);
    EXPECT_GT(deviations(1, squares / n - sum / n * (sum / n)), 10);
  }
}

TEST(Tracked, ErrorIsWhatRoundingDoes) {
  // Sums of 10,000 numbers in fp32: the predicted variance is 1 to 30 times the measured one.
  TestValues random(9);
  double predicted = 0, found = 0;
  for (int trial = 0; trial < 100; ++trial) {
    Tracked sum = 0;
    float rounded = 0;
    for (double v : random.normal(10000)) sum += Tracked(v), rounded += float(v);
    predicted += sum.variance;
    found += (sum.value - rounded) * (sum.value - rounded);
  }
  EXPECT_LT(found, predicted);
  EXPECT_GT(found, predicted / 30);
}

TEST(Tracked, WhatIsFlushedToZeroIsLostWithItsFactors) {
  constexpr double normal = 0x1p-126, below = 0x1p-127;
  EXPECT_EQ(flushed_to_zero(normal).lost, 0);
  EXPECT_EQ(flushed_to_zero({1.01 * normal, std::pow(.01 * normal, 2)}).lost, 1.01 * normal);
  const Tracked p = flushed_to_zero(below), minus = flushed_to_zero(-below);
  EXPECT_EQ(p.lost, below);
  EXPECT_EQ(minus.lost, below);
  EXPECT_EQ((p * Tracked(-3)).lost, 3 * below);
  EXPECT_EQ((Tracked(-3) * p / Tracked(-6)).lost, below / 2);
  EXPECT_EQ((Tracked(1) + p + minus - p).lost, 3 * below);
  EXPECT_EQ(in_16_bits(on_tensor_cores(p, 8, DType::bf16), DType::bf16).lost, below);
  EXPECT_GE(tolerance(p * Tracked(1e6), DType::fp32), 1e6 * below);
  EXPECT_LT(tolerance(Tracked(below) * Tracked(1e6), DType::fp32), .1 * 1e6 * below);
}

}  // namespace
}  // namespace bv::test

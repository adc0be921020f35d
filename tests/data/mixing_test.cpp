// Mixup and cutmix: the distribution of lambda and boxes, which images share them, and the pixels,
// which equal timm's (tests/golden/training/make_mixing.py).
#include "data/augment/mixing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <tuple>
#include <vector>

#include "tests/models/golden_mixing.h"

namespace bv::test {
namespace {

constexpr int draws = 100000;

bool operator==(const Mix& a, const Mix& b) {
  const auto all = [](const Mix& m) {
    return std::tie(m.lambda, m.top, m.left, m.bottom, m.right);
  };
  return all(a) == all(b);
}
bool has_box(const Mix& m) { return m.top < m.bottom && m.left < m.right; }

Mix of_row(const Mixing& m, uint32_t position, int size = 32, uint32_t epoch = 3) {
  return draw_mix(m, {.seed = 11, .epoch = epoch, .position = position, .batch = 8}, size);
}
Mixing each(Mixing m) {
  m.mode = MixMode::elem;
  return m;
}

// ---- lambda -------------------------------------------------------------------------------------
// The distribution function of Beta(a, a) up to 1/2. With t = u^(1/a) the integrand is smooth, and
// is integrated by Simpson's rule.
double beta_below_half(double a, double x) {
  const auto integral = [a](double to) {
    constexpr int n = 2000;
    const double end = std::pow(to, a), h = end / n;
    double sum = 0;
    for (int i = 0; i <= n; ++i)
      sum += (i == 0 || i == n ? 1 : i % 2 ? 4 : 2) * std::pow(1 - std::pow(i * h, 1 / a), a - 1);
    return sum * h / 3;
  };
  return integral(x) / (2 * integral(0.5));
}
double beta_cdf(double a, double x) {
  return x <= 0.5 ? beta_below_half(a, x) : 1 - beta_below_half(a, 1 - x);
}

TEST(Mixing, LambdaIsBetaDistributed) {
  for (const double alpha : {0.2, 0.8, 1.0, 4.0}) {
    std::vector<double> lambdas;
    for (uint32_t i = 0; i < draws; ++i) {
      const Mix m = of_row(each({.mixup = alpha}), i);
      EXPECT_FALSE(has_box(m));
      lambdas.push_back(m.lambda);
    }
    std::ranges::sort(lambdas);
    double farthest = 0;  // Kolmogorov-Smirnov distance, at every 100th draw
    for (size_t i = 0; i < lambdas.size(); i += 100) {
      if (lambdas[i] > 1 - 1e-5) break;  // floats are too coarse there
      farthest =
          std::max(farthest, std::fabs(beta_cdf(alpha, lambdas[i]) - (i + 0.5) / double(draws)));
    }
    EXPECT_LT(farthest * std::sqrt(draws), 1.95) << alpha;  // exceeded by one seed in a thousand
  }
}

TEST(Mixing, ExtremeAlphasAreFinite) {
  for (const double alpha : {1e-310, 1e-9, 1e3})
    for (uint32_t i = 0; i < 1000; ++i) {
      const float lambda = of_row(each({.mixup = alpha}), i).lambda;
      EXPECT_TRUE(lambda >= 0 && lambda <= 1) << alpha;
      EXPECT_NEAR(lambda, alpha < 1 ? std::round(lambda) : 0.5, 0.06);
    }
}

// ---- boxes --------------------------------------------------------------------------------------
using Box = std::array<int, 4>;  // top, bottom, left, right

void expect_boxes(const Mixing& m, int size, const std::map<Box, double>& expected) {
  std::map<Box, int> counts;
  for (uint32_t i = 0; i < draws; ++i) {
    const Mix mix = of_row(m, i, size);
    ++counts[{mix.top, mix.bottom, mix.left, mix.right}];
    const double area = double(mix.bottom - mix.top) * (mix.right - mix.left);
    EXPECT_EQ(mix.lambda, float(1 - area / (size * size)));
  }
  double chi_square = 0, sum = 0;
  for (const auto& [box, p] : expected) {
    const double mean = p * draws, off = counts[box] - mean;
    chi_square += off * off / mean;
    sum += p;
  }
  EXPECT_NEAR(sum, 1, 1e-9);
  for (const auto& [box, count] : counts) EXPECT_TRUE(expected.contains(box)) << count;
  const double freedom = double(expected.size()) - 1;
  EXPECT_LT(chi_square, freedom + 5 * std::sqrt(2 * freedom));
}

// With alpha 1, lambda is uniform, and so is the square of the side.
TEST(Mixing, CutmixBoxesAreTimms) {
  constexpr int size = 6;
  std::map<Box, double> expected;
  const auto span = [&](int centre, int side) {
    return std::pair{std::max(centre - side / 2, 0), std::min(centre + (side + 1) / 2, size)};
  };
  for (int side = 0; side < size; ++side)
    for (int y = 0; y < size; ++y)
      for (int x = 0; x < size; ++x) {
        const auto [top, bottom] = span(y, side);
        const auto [left, right] = span(x, side);
        expected[{top, bottom, left, right}] += (2 * side + 1) / std::pow(size, 4);
      }
  expect_boxes(each({.cutmix = 1}), size, expected);
}

TEST(Mixing, MinmaxBoxesAreTimms) {
  constexpr int size = 10;
  std::map<Box, double> expected;
  for (int height = 3; height < 7; ++height)
    for (int width = 3; width < 7; ++width)
      for (int top = 0; top + height <= size; ++top)
        for (int left = 0; left + width <= size; ++left)
          expected[{top, top + height, left, left + width}] +=
              1.0 / 16 / (size - height + 1) / (size - width + 1);
  expect_boxes(each({.cutmix = 1, .minmax = {0.39, 0.75}}), size, expected);
}

// ---- choices ------------------------------------------------------------------------------------
TEST(Mixing, ProbabilitiesAreTheirs) {
  int mixed = 0, cut = 0;
  for (uint32_t i = 0; i < draws; ++i) {
    const Mix m = of_row(
        each({.mixup = 1, .cutmix = 1, .minmax = {0.2, 0.8}, .prob = 0.4, .switch_prob = 0.3}), i);
    mixed += m.lambda < 1, cut += has_box(m);
  }
  EXPECT_NEAR(mixed, 0.4 * draws, 5 * std::sqrt(draws * 0.4 * 0.6));
  EXPECT_NEAR(cut, 0.12 * draws, 5 * std::sqrt(draws * 0.12 * 0.88));
  for (uint32_t i = 0; i < 1000; ++i) {
    EXPECT_EQ(of_row(each({.mixup = 1, .prob = 0}), i).lambda, 1);
    EXPECT_TRUE(has_box(of_row(each({.cutmix = 1, .minmax = {0.2, 0.8}, .switch_prob = 0}), i)));
    EXPECT_FALSE(has_box(of_row(each({.mixup = 1, .cutmix = 1, .switch_prob = 0}), i)));
  }
}

TEST(Mixing, BatchesPairsAndImagesShareWhatTheModeSays) {
  const auto with = [](MixMode mode) {
    std::vector<Mix> mixes;
    for (uint32_t position = 0; position < 64; ++position)
      mixes.push_back(of_row({.mixup = 0.8, .cutmix = 1, .mode = mode}, position));
    return mixes;
  };
  const auto different = [](const std::vector<Mix>& mixes, size_t step) {
    size_t runs = 0;
    for (size_t i = 0; i < mixes.size(); i += step) {
      for (size_t k = i; k < i + step; ++k) EXPECT_TRUE(mixes[k] == mixes[i]) << k;
      runs += i == 0 || !(mixes[i] == mixes[i - step]);
    }
    return runs;
  };
  EXPECT_EQ(different(with(MixMode::batch), 8), 8u);
  EXPECT_EQ(different(with(MixMode::pair), 2), 32u);
  EXPECT_EQ(different(with(MixMode::elem), 1), 64u);
}

TEST(Mixing, EndsWithItsLastEpoch) {
  const Mixing m{.mixup = 1, .off_epoch = 2};
  EXPECT_LT(of_row(m, 0, 32, 0).lambda, 1);
  EXPECT_LT(of_row(m, 0, 32, 1).lambda, 1);
  EXPECT_TRUE(of_row(m, 0, 32, 2) == Mix{});
  EXPECT_TRUE(of_row(m, 0, 32, 3) == Mix{});
  EXPECT_FALSE(of_row({.mixup = 1}, 0, 32, 0) == of_row({.mixup = 1}, 0, 32, 1));
  EXPECT_TRUE(of_row({}, 0) == Mix{});
}

// ---- pixels -------------------------------------------------------------------------------------
TEST(Mixing, PicturesAreTimms) {
  const auto reference = golden::mixing();
  if (!reference) GTEST_SKIP() << "not in the project's folder";
  const size_t bytes = reference->images.size() / reference->labels.size();
  for (const golden::MixedBatch& c : reference->batches) {
    int unequal = 0;
    for (size_t b = 0; b < c.mixes.size(); ++b) {
      std::vector<uint8_t> out(bytes);
      mix_pictures(out.data(), &reference->images[b * bytes], &reference->images[(b ^ 1) * bytes],
                   c.mixes[b], reference->size);
      for (size_t i = 0; i < bytes; ++i) {
        ASSERT_NEAR(out[i], c.images[b * bytes + i], 1) << c.options << ", row " << b;
        unequal += out[i] != c.images[b * bytes + i];
      }
    }
    EXPECT_LE(unequal, c.images.size() / 50) << c.options;  // except for ties
  }
}

}  // namespace
}  // namespace bv::test

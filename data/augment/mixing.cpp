#include "data/augment/mixing.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "kernels/augment/mix.h"

namespace bv {
namespace {

// A stream of random numbers, for draws that may reject numbers.
class Random {
 public:
  Random(const MixKey& key, uint32_t number) : key_(key), number_(number) {}

  double uniform() { return (word() + 0.5) * 0x1p-32; }  // 0 and 1 excluded
  int below(int limit) { return bv::below(word(), limit); }
  double normal() {  // Box & Muller 1958
    const double radius = std::sqrt(-2 * std::log(uniform()));
    return radius * std::cos(2 * std::numbers::pi * uniform());
  }

 private:
  uint32_t word() {
    if (used_ % 4 == 0) words_ = philox(key_.seed, used_ / 4, number_, key_.epoch, random_mix);
    return words_.at[used_++ % 4];
  }

  MixKey key_;
  uint32_t number_, used_ = 0;
  Philox4 words_{};
};

// The logarithm of a gamma variate with shape >= 1 (Marsaglia & Tsang 2000).
double log_gamma(Random& random, double shape) {
  const double d = shape - 1.0 / 3, c = 1 / std::sqrt(9 * d);
  while (true) {
    const double x = random.normal(), root = 1 + c * x, log_u = std::log(random.uniform());
    if (root <= 0) continue;
    const double v = root * root * root, log_v = std::log(v);
    if (log_u < 0.5 * x * x + d * (1 - v + log_v)) return std::log(d) + log_v;
  }
}

// A Beta(alpha, alpha) variate, g / (g + h) for gamma variates g and h, computed from their
// logarithms, which don't underflow. For a shape below 1, a gamma variate of shape + 1 is
// multiplied by u^(1 / shape), u uniform.
double beta(Random& random, double alpha) {
  const double shape = alpha < 1 ? alpha + 1 : alpha;
  double log_odds = log_gamma(random, shape);
  log_odds -= log_gamma(random, shape);
  if (alpha < 1) {
    const double log_u = std::log(random.uniform());
    log_odds += (log_u - std::log(random.uniform())) / alpha;
  }
  return 1 / (1 + std::exp(-log_odds));
}

// The box's extent along one axis.
struct Span {
  int begin, end;
};

// An extent centred on a random pixel, clipped to the image.
Span around_a_pixel(Random& random, int length, int size) {
  const int centre = random.below(size);
  return {std::max(centre - length / 2, 0), std::min(centre + (length + 1) / 2, size)};
}

Span between(Random& random, const std::array<double, 2>& minmax, int size) {
  const int least = static_cast<int>(size * minmax[0]), most = static_cast<int>(size * minmax[1]);
  const int length = least + random.below(most - least);
  const int begin = random.below(size - length + 1);
  return {begin, begin + length};
}

// lambda is recomputed from the area of the box, which may have been clipped.
Mix cut(Random& random, const Mixing& m, double lambda, int size) {
  const int length = static_cast<int>(size * std::sqrt(1 - lambda));
  const auto span = [&] {
    return m.minmax[1] > 0 ? between(random, m.minmax, size) : around_a_pixel(random, length, size);
  };
  const auto [top, bottom] = span();
  const auto [left, right] = span();
  const double area = double(bottom - top) * (right - left);
  return {.lambda = static_cast<float>(1 - area / (double(size) * size)),
          .top = static_cast<int16_t>(top),
          .left = static_cast<int16_t>(left),
          .bottom = static_cast<int16_t>(bottom),
          .right = static_cast<int16_t>(right)};
}

uint32_t number_of(MixMode mode, const MixKey& key) {
  switch (mode) {
    case MixMode::batch:
      return key.position / static_cast<uint32_t>(key.batch);
    case MixMode::pair:
      return key.position / 2;
    default:
      return key.position;
  }
}

}  // namespace

Mix draw_mix(const Mixing& m, const MixKey& key, int size) {
  const bool off = m.off_epoch > 0 && key.epoch >= static_cast<uint32_t>(m.off_epoch);
  if (!m.any() || off) return {};
  Random random(key, number_of(m.mode, key));
  if (random.uniform() >= m.prob) return {};
  const bool both = m.mixup > 0 && m.cutmix > 0;
  const bool cuts = both ? random.uniform() < m.switch_prob : m.cutmix > 0;
  const double lambda = beta(random, cuts ? m.cutmix : m.mixup);
  if (cuts) return cut(random, m, lambda, size);
  return {.lambda = static_cast<float>(lambda)};
}

void mix_pictures(uint8_t* out, const uint8_t* image, const uint8_t* partner, const Mix& mix,
                  int size) {
  for (int y = 0; y < size; ++y)
    for (int x = 0; x < size; ++x) {
      const int part = own_part(mix, y, x);
      for (int c = 0; c < 3; ++c) *out++ = static_cast<uint8_t>(mixed(*image++, *partner++, part));
    }
}

}  // namespace bv

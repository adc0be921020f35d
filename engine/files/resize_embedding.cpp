// Separable. Output i is centred at scale * (i + 0.5) of the input, scale = from/to, and is the
// mean of the inputs around it under the cubic kernel (Keys 1981), stretched by scale when the grid
// shrinks so that every input counts. Weights outside the grid are dropped and the rest normalised
// to a sum of one.
#include "engine/files/resize_embedding.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace bv {
namespace {

struct Taps {
  int first = 0;
  std::vector<double> weights;
};

double cubic(double x) {
  constexpr double a = -0.5;
  x = std::abs(x);
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  if (x < 2) return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a;
  return 0;
}

Taps taps_of(int i, int from, int to) {
  const double scale = double(from) / to, stretch = std::max(scale, 1.0);
  const double centre = scale * (i + 0.5), reach = 2 * stretch;
  Taps taps{.first = std::max(int(centre - reach + 0.5), 0)};
  const int last = std::min(int(centre + reach + 0.5), from);
  double sum = 0;
  for (int j = taps.first; j < last; ++j) {
    taps.weights.push_back(cubic((j - centre + 0.5) / stretch));
    sum += taps.weights.back();
  }
  for (double& w : taps.weights) w /= sum;
  return taps;
}

// Resizes the middle dimension of [outer, from, inner].
std::vector<double> resize_middle(const std::vector<double>& inp, size_t outer, int from, int to,
                                  size_t inner) {
  std::vector<double> out(outer * size_t(to) * inner);
  for (int i = 0; i < to; ++i) {
    const Taps taps = taps_of(i, from, to);
    for (size_t o = 0; o < outer; ++o) {
      double* const row = &out[(o * size_t(to) + size_t(i)) * inner];
      for (size_t j = 0; j < taps.weights.size(); ++j) {
        const double* const source = &inp[(o * size_t(from) + size_t(taps.first) + j) * inner];
        for (size_t c = 0; c < inner; ++c) row[c] += taps.weights[j] * source[c];
      }
    }
  }
  return out;
}

}  // namespace

std::vector<float> resize_embedding(std::span<const float> grid, int from, int to, int channels) {
  if (from <= 0 || to <= 0 || channels <= 0 ||
      grid.size() != size_t(from) * size_t(from) * size_t(channels))
    throw std::invalid_argument("resize_embedding: grid is not [from, from, channels]");
  const size_t C = size_t(channels);
  const std::vector<double> inp(grid.begin(), grid.end());
  const auto wide = resize_middle(inp, size_t(from), from, to, C);
  const auto out = resize_middle(wide, 1, from, to, size_t(to) * C);
  return {out.begin(), out.end()};
}

}  // namespace bv

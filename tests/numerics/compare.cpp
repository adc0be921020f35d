#include "tests/numerics/compare.h"

#include <cmath>
#include <limits>
#include <sstream>
#include <stdexcept>

namespace bv::test {
namespace {

double error_ratio(double actual, double expected, double tolerance) {
  if (actual == expected) return 0;
  const double err = std::fabs(actual - expected);
  const double ratio = err / tolerance;
  // Every NaN, including that of inf - inf, and every infinite error falls into the last case.
  return err <= tolerance && std::isfinite(err) ? ratio
         : ratio > 1                            ? ratio
                                                : std::numeric_limits<double>::infinity();
}

}  // namespace

Comparison compare(std::span<const double> actual, std::span<const double> expected,
                   std::span<const double> tolerance) {
  if (actual.size() != expected.size() || actual.size() != tolerance.size())
    throw std::invalid_argument("compare: sizes differ");
  Comparison c{.count = actual.size()};
  for (size_t i = 0; i < actual.size(); ++i) {
    const double ratio = error_ratio(actual[i], expected[i], tolerance[i]);
    if (!(ratio <= 1)) ++c.failures;
    if (ratio > c.ratio || i == 0)
      c.worst = i, c.actual = actual[i], c.expected = expected[i], c.tolerance = tolerance[i],
      c.ratio = ratio;
  }
  return c;
}

std::string Comparison::describe(std::span<const int> shape) const {
  std::ostringstream s;
  s.precision(9);
  s << failures << " of " << count << " elements differ; worst " << index_name(worst, shape) << ": "
    << actual << " is not " << expected << " +- ";
  s.precision(3);
  s << tolerance << " (err / tolerance " << ratio << ")";
  return s.str();
}

std::string index_name(size_t flat, std::span<const int> shape) {
  std::string name;
  for (size_t i = shape.size(); i-- > 0;) {
    const size_t extent = size_t(shape[i]);
    name = std::to_string(i == 0 ? flat : flat % extent) + (name.empty() ? "" : ", ") + name;
    flat /= extent;
  }
  return "[" + name + "]";
}

}  // namespace bv::test

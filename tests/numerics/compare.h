// The comparison that all numeric tests use. A pass is err <= tolerance, so NaN and unwritten
// output fail.
#pragma once
#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace bv::test {

struct Comparison {
  size_t count = 0, failures = 0;
  size_t worst = 0;  // index of the element with the largest err / tolerance; NaN is the largest
  double actual = 0, expected = 0, tolerance = 0;  // of that element
  double ratio = 0;                                // its err / tolerance

  bool ok() const { return failures == 0; }
  // "7 of 960 elements differ; worst [4, 191]: 1.5 is not 1.25 +- 1e-06 (err / tolerance 2.5e+05)"
  std::string describe(std::span<const int> shape) const;
};

// An infinity equals only itself; an expected NaN always fails. Tolerance 0 demands equality.
Comparison compare(std::span<const double> actual, std::span<const double> expected,
                   std::span<const double> tolerance);

// "[1, 0, 17]": the indices of element `flat` of a row-major tensor.
std::string index_name(size_t flat, std::span<const int> shape);

}  // namespace bv::test

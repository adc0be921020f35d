// GELU and its derivative in double precision, for the tests of the operations that compute them.
#pragma once
#include "tests/numerics/tracked.h"

namespace bv::test {

inline Tracked normal_cdf(Tracked x) {
  constexpr double sqrt_half = 0.70710678118654752440;
  return Tracked(0.5) * (Tracked(1) + erf(x * sqrt_half));
}

inline Tracked gelu(Tracked x) { return x * normal_cdf(x); }

inline Tracked gelu_slope(Tracked x) {
  constexpr double sqrt_2pi = 2.50662827463100050242;
  return normal_cdf(x) + x * (exp(Tracked(-0.5) * x * x) / sqrt_2pi);
}

}  // namespace bv::test

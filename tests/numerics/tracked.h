// A number in double precision that also tracks how far a correct fp32 computation may be from it:
// the variance of the error from rounding every intermediate result to fp32 (each rounding an
// independent error of 2^-24 relative). Tolerances therefore follow from the operation and its
// data, not from guesswork, and grow with the square root of a sum's length. If a 16-bit kernel
// stores an intermediate result in 16 bits, in_16_bits() adds that rounding.
#pragma once
#include <algorithm>
#include <cmath>
#include <vector>

#include "tests/numerics/format.h"

namespace bv::test {

struct Tracked {
  static constexpr double rounding = 0x1p-24;

  double value = 0, variance = 0;
  double lost = 0;  // bound of the additional error from flushing to zero (flushed_to_zero)

  Tracked() = default;
  Tracked(double exact) : value(exact) {}  // NOLINT: an exact number is one
  Tracked(double v, double error_variance, double lost_at_most = 0)
      : value(v), variance(error_variance), lost(lost_at_most) {}
  // A computed number, rounded to fp32 `times` times.
  static Tracked computed(double v, double error_variance, double lost_at_most, double times = 1) {
    const double r = times * rounding * v;
    return {v, error_variance + r * r, lost_at_most};
  }
};

inline Tracked operator+(Tracked a, Tracked b) {
  return Tracked::computed(a.value + b.value, a.variance + b.variance, a.lost + b.lost);
}
inline Tracked operator-(Tracked a, Tracked b) {
  return Tracked::computed(a.value - b.value, a.variance + b.variance, a.lost + b.lost);
}
inline Tracked operator*(Tracked a, Tracked b) {
  return Tracked::computed(a.value * b.value,
                           b.value * b.value * a.variance + a.value * a.value * b.variance,
                           std::fabs(b.value) * a.lost + std::fabs(a.value) * b.lost);
}
inline Tracked operator/(Tracked a, Tracked b) {
  const double q = a.value / b.value;
  return Tracked::computed(q, (a.variance + q * q * b.variance) / (b.value * b.value),
                           (a.lost + std::fabs(q) * b.lost) / std::fabs(b.value));
}
inline Tracked& operator+=(Tracked& a, Tracked b) { return a = a + b; }
inline Tracked exp(Tracked a) {
  const double e = std::exp(a.value);
  return Tracked::computed(e, e * e * a.variance, e * a.lost, 2);
}
inline Tracked log(Tracked a) {
  constexpr double r = Tracked::rounding;
  return Tracked::computed(std::log(a.value), a.variance / (a.value * a.value) + r * r,
                           a.lost / std::fabs(a.value));
}
inline Tracked sqrt(Tracked a) {
  const double s = std::sqrt(a.value);
  return Tracked::computed(s, s == 0 ? 0 : a.variance / (4 * s * s), s == 0 ? 0 : a.lost / (2 * s));
}
// The result of an instruction with .ftz, such as ex2.approx.ftz. If its error may take it below
// fp32's smallest normal number, 2^-126, it may become 0: then all of it is lost, at most 2^-126,
// in addition to that error. Later operations multiply the loss by their factors; sums add
// magnitudes, since all their terms may be flushed.
inline Tracked flushed_to_zero(Tracked a) {
  constexpr double smallest_normal = 0x1p-126, deviations = 5;
  const double size = std::fabs(a.value);
  if (size - deviations * std::sqrt(a.variance) < smallest_normal) a.lost += size;
  return a;
}
// Adds an error that is uniform up to half an ulp, at the scale where that is largest: a kernel may
// scale before or after rounding. For subnormal numbers, the scale is assumed to be 1. In fp32,
// returns the number itself.
inline Tracked in_16_bits(Tracked a, DType dtype) {
  if (dtype == DType::fp32) return a;
  const double r = std::max(half_ulp(1, dtype) * std::fabs(a.value), half_ulp(0, dtype));
  return {a.value, a.variance + r * r / 3, a.lost};
}
// A sum of `terms` products of 16-bit operands as tensor cores compute it: truncated, not rounded,
// after each block of 4 to 16 products (simt/device/tensor_cores.h). With S_j the sum after block
// j, each truncation loses about 2^-24 S_j: in total blocks / 2 times the last loss if the sum
// grows evenly. The variation of the losses adds terms / 96 times the variance of rounding every
// term. In fp32, returns the number itself.
inline Tracked on_tensor_cores(Tracked sum, double terms, DType dtype) {
  if (dtype == DType::fp32) return sum;
  const double bias = std::ceil(terms / 4) * Tracked::rounding * std::fabs(sum.value) / 2;
  return {sum.value, sum.variance * (1 + terms / 96) + bias * bias, sum.lost};
}
inline Tracked tanh(Tracked a) {
  const double t = std::tanh(a.value), slope = 1 - t * t;
  return Tracked::computed(t, slope * slope * a.variance, slope * a.lost, 2);
}
// Absolute error, since it is used in 1 + erf(x).
inline Tracked erf(Tracked a) {
  constexpr double r = 2 * Tracked::rounding;
  const double slope = 1.1283791670955126 * std::exp(-a.value * a.value);
  return {std::erf(a.value), slope * slope * a.variance + r * r, slope * a.lost};
}

}  // namespace bv::test

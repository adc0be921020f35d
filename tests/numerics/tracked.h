// A number in double precision that knows how far a correct fp32 computation may be from it: beside
// the value, the variance of the error that fp32 rounding of every intermediate result brings (each
// rounding an independent error of 2^-24 relative). So tolerances follow from the operation and its
// data, and grow with the square root of a sum's length, not with anyone's guess. Where a kernel
// for 16 bits holds an intermediate result in these, in_16_bits() adds that rounding.
#pragma once
#include <algorithm>
#include <cmath>
#include <vector>

#include "tests/numerics/format.h"

namespace bv::test {

struct Tracked {
  static constexpr double rounding = 0x1p-24;

  double value = 0, variance = 0;
  double lost = 0;  // a bound of what flushing to zero changes besides (flushed_to_zero)

  Tracked() = default;
  Tracked(double exact) : value(exact) {}  // NOLINT: an exact number is one
  Tracked(double v, double error_variance, double lost_at_most = 0)
      : value(v), variance(error_variance), lost(lost_at_most) {}
  // A computed number, rounded to fp32 `times` over.
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
// A result of an instruction with .ftz, such as ex2.approx.ftz. Where its error may take it below
// fp32's smallest normal number, 2^-126, it may be 0: all of it is lost, which is 2^-126 at most,
// beside that error. Later operations multiply the loss by their factors; sums add magnitudes,
// since all their terms may be cut.
inline Tracked flushed_to_zero(Tracked a) {
  constexpr double smallest_normal = 0x1p-126, deviations = 5;
  const double size = std::fabs(a.value);
  if (size - deviations * std::sqrt(a.variance) < smallest_normal) a.lost += size;
  return a;
}
// An error that is uniform up to half an ulp, of the scale at which it is largest: a kernel may
// scale before or after. fp16's subnormal numbers are as far apart as at a scale of 1. In fp32 the
// number itself.
inline Tracked in_16_bits(Tracked a, DType dtype) {
  if (dtype == DType::fp32) return a;
  const double r = std::max(half_ulp(1, dtype) * std::fabs(a.value), half_ulp(0, dtype));
  return {a.value, a.variance + r * r / 3, a.lost};
}
// A sum of `terms` products of 16-bit factors, as tensor cores make it: each block of 4 to 16 of
// them is cut off, not rounded (simt/device/tensor_cores.h). With S_j the sum after block j
// the loss is about 2^-24 S_j each time: blocks / 2 times the last one's if the sum grows evenly.
// How it wanders multiplies the variance that rounding every term has, by terms / 96. In fp32 the
// number itself.
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

// How tensor cores add: in fp32 or, if simt::tensor_cores is set, like real ones, which align a
// block of products and the current sum to the largest exponent, drop the bits below, and truncate
// the new sum to fp32 (Fasi et al. 2021; Khattak and Mikaitis 2025).
#pragma once
#include <algorithm>
#include <cmath>

#include "simt/device/control.h"

namespace simt {

// sum + the products of `count` pairs; pair(i) returns the i-th product as a double.
template <class Pair>
float truncated_sum(float sum, int count, Pair pair) {
  const auto [block, extra_bits] = tensor_cores;
  for (int begin = 0; begin < count; begin += block) {
    const int end = std::min(begin + block, count);
    double largest = std::fabs(sum), plain = sum;
    for (int i = begin; i < end; ++i) {
      largest = std::max(largest, std::fabs(pair(i)));
      plain += pair(i);
    }
    if (!std::isfinite(plain) || largest == 0) {
      sum = float(plain);
      continue;
    }
    const double unit = std::ldexp(1.0, std::ilogb(largest) - 23 - extra_bits);
    const auto cut = [unit](double x) { return std::trunc(x / unit) * unit; };
    double exact = cut(sum);
    for (int i = begin; i < end; ++i) exact += cut(pair(i));
    sum = float(exact);
    if (std::fabs(double{sum}) > std::fabs(exact)) sum = std::nextafter(sum, 0.0f);
  }
  return sum;
}

}  // namespace simt

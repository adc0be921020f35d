// The storage formats of kernels.h as plain arithmetic on doubles, for tests only: shares nothing
// with the kernels' own conversions.
#pragma once
#include <cstddef>
#include <vector>

#include "kernels/types.h"

namespace bv::test {

// v as stored in that dtype: rounded to nearest, ties to even, infinity beyond the largest number.
double held(double v, DType);
std::vector<double> held(std::vector<double>, DType);

// The largest error of that rounding for numbers up to |v|.
double half_ulp(double v, DType);

std::vector<std::byte> encode(const std::vector<double>&, DType);
std::vector<double> decode(const std::vector<std::byte>&, DType);
// Whether no element is infinite or NaN, tested without decoding.
bool all_finite(const std::vector<std::byte>&, DType);

}  // namespace bv::test

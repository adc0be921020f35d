// The storage formats of kernels.h as plain arithmetic on doubles, for the tests alone: nothing is
// shared with what the kernels convert by.
#pragma once
#include <cstddef>
#include <vector>

#include "kernels/kernels.h"

namespace bv::test {

// The number that an element of dtype holds of v: rounded to nearest, ties to even, beyond the
// largest number an infinity.
double held(double v, DType);
std::vector<double> held(std::vector<double>, DType);

// The largest error of that rounding for numbers up to |v|.
double half_ulp(double v, DType);

std::vector<std::byte> encode(const std::vector<double>&, DType);
std::vector<double> decode(const std::vector<std::byte>&, DType);

}  // namespace bv::test

#include "tests/numerics/format.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

namespace bv::test {
namespace {

// std::ldexp and std::ilogb for the exponents of normal doubles; short enough to be inlined, since
// every element of every test is converted here.
double scaled(double v, int exponent) {
  return v * std::bit_cast<double>(uint64_t(1023 + exponent) << 52);
}
int exponent_of(double v) { return int(std::bit_cast<uint64_t>(v) >> 52 & 0x7FF) - 1023; }

struct Format {
  int exponent_bits, fraction_bits;

  uint32_t infinity() const { return ((1u << exponent_bits) - 1) << fraction_bits; }
  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  // The exponent of the distance between neighbouring numbers at |v|.
  int unit(double v) const {
    const int smallest = 1 - bias() - fraction_bits;  // of subnormal numbers
    const int exponent = exponent_of(v);
    return exponent < 1 - bias() ? smallest : exponent - fraction_bits;
  }
};

Format format(DType dtype) {
  return dtype == DType::fp32 ? Format{8, 23} : dtype == DType::fp16 ? Format{5, 10} : Format{8, 7};
}

uint32_t bits_of(double v, Format f) {
  const uint32_t sign = uint32_t(std::signbit(v)) << (f.exponent_bits + f.fraction_bits);
  if (std::isnan(v)) return sign | f.infinity() | 1u << (f.fraction_bits - 1);
  if (std::isinf(v)) return sign | f.infinity();
  // Counted in units, a normal number includes its leading one, which the exponent field absorbs.
  const int unit = f.unit(v);
  const auto fraction = uint32_t(scaled(std::fabs(v), -unit));
  const uint32_t exponent = uint32_t(unit - (1 - f.bias() - f.fraction_bits));
  return sign | ((exponent << f.fraction_bits) + fraction);
}

double value_of(uint32_t bits, Format f) {
  const uint32_t fraction = bits & ((1u << f.fraction_bits) - 1);
  const int exponent = int(bits >> f.fraction_bits) & ((1 << f.exponent_bits) - 1);
  const bool negative = bits >> (f.exponent_bits + f.fraction_bits) & 1;
  double v;
  if (exponent == (1 << f.exponent_bits) - 1)
    v = fraction ? std::numeric_limits<double>::quiet_NaN()
                 : std::numeric_limits<double>::infinity();
  else if (exponent == 0)
    v = scaled(fraction, 1 - f.bias() - f.fraction_bits);
  else
    v = scaled(fraction + (1u << f.fraction_bits), exponent - f.bias() - f.fraction_bits);
  return negative ? -v : v;
}

}  // namespace

double held(double v, DType dtype) {
  if (dtype == DType::fp32) return float(v);
  if (!std::isfinite(v)) return v;
  const Format f = format(dtype);
  const int unit = f.unit(v);
  const double rounded = scaled(std::nearbyint(scaled(v, -unit)), unit);
  return std::fabs(rounded) < scaled(1, f.bias() + 1)
             ? rounded
             : std::copysign(std::numeric_limits<double>::infinity(), v);
}

std::vector<double> held(std::vector<double> values, DType dtype) {
  for (double& v : values) v = held(v, dtype);
  return values;
}

double half_ulp(double v, DType dtype) {
  return std::isfinite(v) ? scaled(0.5, format(dtype).unit(v)) : 0;
}

std::vector<std::byte> encode(const std::vector<double>& values, DType dtype) {
  const size_t size = size_of(dtype);
  std::vector<std::byte> bytes(values.size() * size);
  for (size_t i = 0; i < values.size(); ++i) {
    const uint32_t bits = bits_of(held(values[i], dtype), format(dtype));
    std::memcpy(&bytes[size * i], &bits, size);  // little-endian: the low half
  }
  return bytes;
}

std::vector<double> decode(const std::vector<std::byte>& bytes, DType dtype) {
  const size_t size = size_of(dtype);
  std::vector<double> values(bytes.size() / size);
  if (dtype == DType::fp32) {
    for (size_t i = 0; i < values.size(); ++i) {
      float value;
      std::memcpy(&value, &bytes[size * i], size);
      values[i] = value;
    }
    return values;
  }
  const Format f = format(dtype);
  for (size_t i = 0; i < values.size(); ++i) {
    uint16_t bits;
    std::memcpy(&bits, &bytes[size * i], size);
    values[i] = value_of(bits, f);
  }
  return values;
}

bool all_finite(const std::vector<std::byte>& bytes, DType dtype) {
  // Eight bytes at a time: one added to an exponent of ones alone carries into the sign's bit.
  const uint64_t all = size_of(dtype) == 4 ? 0x1'0000'0001 : 0x1'0001'0001'0001;
  const uint64_t infinity = format(dtype).infinity(), one = infinity & (~infinity + 1);
  uint64_t found = 0;
  for (size_t i = 0; i < bytes.size(); i += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, &bytes[i], std::min(sizeof word, bytes.size() - i));
    found |= (word & infinity * all) + one * all;
  }
  return !(found & (infinity + one) * all);
}

}  // namespace bv::test

#include "app/html_report/markup/axis.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace bv {
namespace {

// The largest of 1, 2, 5 times a power of ten that is at most x, or the smallest that is at least.
double round_down(double x) {
  const double power = std::pow(10, std::floor(std::log10(x) + 1e-9));
  const double digit = x / power * (1 + 1e-9);
  return (digit >= 5 ? 5 : digit >= 2 ? 2 : 1) * power;
}
double round_up(double x) {
  const double down = round_down(x);
  if (x <= down * (1 + 1e-9)) return down;
  const double digit = std::round(down / std::pow(10, std::floor(std::log10(down) + 1e-9)));
  return down * (digit == 2 ? 2.5 : 2);
}

std::string fixed(double value, int decimals) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", decimals, value);
  return text;
}

// 2e-05 becomes 2e-5.
std::string scientific(double value, int decimals) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*e", decimals, value);
  std::string result = text;
  const size_t e = result.find('e');
  size_t zeros = e + 2;
  while (zeros + 1 < result.size() && result[zeros] == '0') ++zeros;
  result.erase(e + 2, zeros - e - 2);
  if (result[e + 1] == '+') result.erase(e + 1, 1);
  return result;
}

Axis linear(double low, double high, int most, bool widens) {
  if (!(high > low)) {  // one value: room around it
    const double room = low == 0 ? 1 : std::abs(low) / 10;
    low -= widens ? room : 0;
    high += room;
  }
  const double step = round_up((high - low) / most);
  Axis axis{.low = low, .high = high};
  if (widens) {
    axis.low = std::floor(low / step + 1e-9) * step;
    axis.high = std::ceil(high / step - 1e-9) * step;
  }
  const auto first = static_cast<int64_t>(std::ceil(axis.low / step - 1e-9));
  const auto last = static_cast<int64_t>(std::floor(axis.high / step + 1e-9));
  for (int64_t i = first; i <= last; ++i) {
    const double at = static_cast<double>(i) * step;
    axis.ticks.push_back({at, tick_label(at, step)});
  }
  return axis;
}

// Ticks at 1, 2, 5, 10 over few decades, else at powers of ten.
Axis decades(double low, double high, int most) {
  Axis axis{.low = round_down(low), .high = round_up(high), .log = true};
  if (axis.high <= axis.low) axis.low = round_down(axis.low * 0.6), axis.high *= 2;
  std::vector<double> at;
  for (double x = axis.low; x <= axis.high * (1 + 1e-9); x = round_up(x * 1.5)) at.push_back(x);
  if (static_cast<int>(at.size()) > most + 2) {
    const int from = static_cast<int>(std::floor(std::log10(axis.low) + 1e-9));
    const int to = static_cast<int>(std::ceil(std::log10(axis.high) - 1e-9));
    const int stride = std::max(1, (to - from + most) / (most + 1));
    at.clear();
    for (int power = from; power <= to; power += stride)
      if (const double x = std::pow(10, power);
          x >= axis.low * (1 - 1e-9) && x <= axis.high * (1 + 1e-9))
        at.push_back(x);
  }
  for (const double x : at) axis.ticks.push_back({x, tick_label(x, x)});
  return axis;
}

Axis powers_of_two(double low, double high, int most) {
  int from = static_cast<int>(std::floor(std::log2(low))),
      to = static_cast<int>(std::ceil(std::log2(high)));
  if (to == from) --from, ++to;
  const int stride = std::max(1, (to - from + most - 1) / most);
  to = from + (to - from + stride - 1) / stride * stride;
  Axis axis{.low = std::exp2(from), .high = std::exp2(to), .log = true};
  for (int power = from; power <= to; power += stride)
    axis.ticks.push_back({std::exp2(power), value_text(std::exp2(power))});
  return axis;
}

}  // namespace

double Axis::place(double value) const {
  if (!log) return (value - low) / (high - low);
  return (std::log(value) - std::log(low)) / (std::log(high) - std::log(low));
}

Axis make_axis(double low, double high, AxisScale scale, int most, bool widens) {
  if (scale == AxisScale::log10) return decades(low, high, most);
  if (scale == AxisScale::log2) return powers_of_two(low, high, most);
  return linear(low, high, most, widens);
}

std::string tick_label(double value, double step) {
  const double size = std::max(std::abs(value), step);
  if (value == 0) return "0";
  for (const auto& [unit, suffix] : {std::pair{1e9, "G"}, {1e6, "M"}, {1e3, "k"}})
    if (size >= 10 * unit || (size >= unit && step >= unit))
      return fixed(value / unit,
                   step < unit ? std::max(0, int(std::ceil(-std::log10(step / unit) - 1e-9))) : 0) +
             suffix;
  if (step < 9.9e-5) {
    const int digits = static_cast<int>(std::floor(std::log10(std::abs(value)) + 1e-9)) -
                       static_cast<int>(std::floor(std::log10(step) + 1e-9));
    return scientific(value, std::max(0, digits));
  }
  return fixed(value, step < 1 ? static_cast<int>(std::ceil(-std::log10(step) - 1e-9)) : 0);
}

std::string value_text(double value) {
  const double size = std::abs(value);
  if (std::isnan(value)) return "not finite";
  if (size > 0 && size < 1e-3) return scientific(value, 2);
  if (size >= 1e7) return scientific(value, 3);
  if (size >= 1000 || value == std::round(value)) return fixed(value, 0);
  return fixed(value, size >= 100 ? 1 : size >= 10 ? 2 : 4);
}

}  // namespace bv

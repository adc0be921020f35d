// An axis of a chart: its ends, and ticks at round numbers.
#pragma once
#include <string>
#include <vector>

namespace bv {

struct Tick {
  double at;
  std::string label;
};

struct Axis {
  double low = 0, high = 1;
  bool log = false;
  std::vector<Tick> ticks = {};
  double place(double value) const;  // 0 at low, 1 at high
};

enum class AxisScale : uint8_t { linear, log10, log2 };

// About `most` ticks. An axis that widens ends at ticks, another one where the data do. Values on
// a logarithmic scale must be positive.
Axis make_axis(double low, double high, AxisScale, int most, bool widens = true);

// 0.25, 1200, 12k, 3.5M, 2e-5
std::string tick_label(double value, double step);
// A value to read: four digits at most, or whole.
std::string value_text(double value);

}  // namespace bv

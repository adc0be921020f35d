// A line chart as SVG in HTML, drawn once, at writing time.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "app/html_report/markup/axis.h"

namespace bv {

struct Point {
  double x, y;  // y NaN: a value that was not finite
};

struct Series {
  enum Style : uint8_t { line, faint, dashed, dotted };
  std::string name;
  std::vector<Point> points;  // by rising x
  int color = 0;              // of the page's palette
  Style style = line;
};

struct Chart {
  std::string title;
  std::string unit;    // after the title; may be empty
  std::string x_name;  // "step"
  std::vector<Series> curves;
  AxisScale scale = AxisScale::linear;
  std::optional<double> low = {}, high = {};  // the least that the axis shows
};

// At most about `most` points: of each stretch the lowest and the highest one, so that spikes stay,
// and one that isn't finite.
std::vector<Point> thinned(const std::vector<Point>&, size_t most);

// Empty where no curve has a point.
std::string draw(const Chart&);

}  // namespace bv

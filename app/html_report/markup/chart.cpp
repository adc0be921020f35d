#include "app/html_report/markup/chart.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

#include "app/html_report/markup/html.h"

namespace bv {
namespace {

constexpr double width = 400, height = 240, left = 48, right = 12, top = 10, bottom = 38;
constexpr double plot_width = width - left - right, plot_height = height - top - bottom;
constexpr size_t max_points = 1000, max_marks = 40, dense = 200;

std::string coordinate(double x) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f", x);
  std::string result = text;
  while (result.back() == '0') result.pop_back();
  if (result.back() == '.') result.pop_back();
  return result == "-0" ? "0" : result;
}

std::string attribute(const char* name, double value) {
  return std::string(" ") + name + "=\"" + coordinate(value) + "\"";
}

class Drawing {
 public:
  explicit Drawing(const Chart& chart);
  std::string text() const;

 private:
  double x_of(double x) const { return left + x_.place(x) * plot_width; }
  double y_of(double y) const { return top + (1 - y_.place(y)) * plot_height; }
  std::string grid() const;
  std::string curve(const Series&) const;
  std::string legend() const;
  std::string spoken() const;  // for those who don't see it
  bool any_not_finite() const;

  Chart chart_;  // thinned
  Axis x_, y_;
};

Drawing::Drawing(const Chart& chart) : chart_(chart) {
  double x_low = HUGE_VAL, x_high = -HUGE_VAL, low = HUGE_VAL, high = -HUGE_VAL;
  std::erase_if(chart_.curves, [](const Series& c) { return c.points.empty(); });
  for (Series& c : chart_.curves) {
    for (const Point& p : c.points) {
      x_low = std::min(x_low, p.x), x_high = std::max(x_high, p.x);
      if (std::isfinite(p.y)) low = std::min(low, p.y), high = std::max(high, p.y);
    }
    c.points = thinned(c.points, max_points);
  }
  if (!(low <= high)) low = 0, high = 1;  // nothing finite
  if (chart_.scale == AxisScale::linear) {
    low = std::min(low, chart_.low.value_or(low)),
    high = std::max(high, chart_.high.value_or(high));
  } else if (!(low > 0)) {
    chart_.scale = AxisScale::linear;
  }
  // A run's time begins at 0.
  x_ = make_axis(std::min(0.0, x_low), x_high, AxisScale::linear, 5, false);
  y_ = make_axis(low, high, chart_.scale, 5);
}

std::string Drawing::grid() const {
  std::string text = "<g class=\"grid\">";
  for (const Tick& t : y_.ticks)
    text += "<line" + attribute("x1", left) + attribute("x2", width - right) +
            attribute("y1", y_of(t.at)) + attribute("y2", y_of(t.at)) + "/>";
  text += "</g><g class=\"ticks\">";
  for (const Tick& t : y_.ticks)
    text += "<text class=\"end\"" + attribute("x", left - 6) + attribute("y", y_of(t.at) + 4) +
            ">" + t.label + "</text>";
  for (const Tick& t : x_.ticks)
    text += "<line" + attribute("x1", x_of(t.at)) + attribute("x2", x_of(t.at)) +
            attribute("y1", height - bottom) + attribute("y2", height - bottom + 4) + "/>" +
            "<text class=\"middle\"" + attribute("x", x_of(t.at)) +
            attribute("y", height - bottom + 16) + ">" + t.label + "</text>";
  text += "<line" + attribute("x1", left) + attribute("x2", width - right) +
          attribute("y1", height - bottom) + attribute("y2", height - bottom) + "/>";
  return text + "<text class=\"middle\"" + attribute("x", left + plot_width / 2) +
         attribute("y", height - 5) + ">" + escape_html(chart_.x_name) + "</text></g>";
}

std::string class_of(const Series& c) {
  constexpr const char* styles[] = {"line", "line faint", "line dashed", "line dotted"};
  return std::string("class=\"") + styles[c.style] + (c.points.size() > dense ? " dense" : "") +
         " s" + std::to_string(c.color) + "\"";
}

std::string Drawing::curve(const Series& c) const {
  std::string path, marks;
  bool pen_down = false;
  for (const Point& p : c.points) {
    const std::string x = coordinate(x_of(p.x));
    if (!std::isfinite(p.y)) {
      marks += "<path class=\"lost\" d=\"M" + coordinate(x_of(p.x) - 3) + " " + coordinate(top) +
               "l6 6m0 -6l-6 6\"/>";
      pen_down = false;
      continue;
    }
    const std::string y = coordinate(y_of(p.y));
    path += (pen_down ? "L" : "M") + x + " " + y;
    pen_down = true;
    if (c.style != Series::faint && c.points.size() <= max_marks)
      marks += "<circle cx=\"" + x + "\" cy=\"" + y +
               (c.points.size() == 1 ? "\" r=\"3.5\"/>" : "\" r=\"2\"/>");
  }
  return "<g " + class_of(c) + "><path class=\"curve\" data-name=\"" + escape_html(c.name) +
         "\" d=\"" + path + "\"/>" + marks + "</g>";
}

bool Drawing::any_not_finite() const {
  return std::ranges::any_of(chart_.curves, [](const Series& c) {
    return std::ranges::any_of(c.points, [](const Point& p) { return !std::isfinite(p.y); });
  });
}

std::string Drawing::legend() const {
  std::string items;
  const auto add = [&](const std::string& sample, const std::string& name) {
    items += "<li><svg width=\"22\" height=\"10\" aria-hidden=\"true\">" + sample + "</svg>" +
             escape_html(name) + "</li>";
  };
  if (chart_.curves.size() > 1)
    for (const Series& c : chart_.curves)
      add("<g " + class_of(c) + "><path class=\"curve\" d=\"M1 5L21 5\"/></g>", c.name);
  if (any_not_finite()) add("<path class=\"lost\" d=\"M8 2l6 6m0 -6l-6 6\"/>", "not finite");
  return items.empty() ? "" : element("ul", "class=\"legend\"", items);
}

std::string Drawing::spoken() const {
  std::string text = chart_.title + (chart_.unit.empty() ? "" : " (" + chart_.unit + ")") + " by " +
                     chart_.x_name + ".";
  for (const Series& c : chart_.curves)
    text += " " + c.name + ": from " + value_text(c.points.front().y) + " to " +
            value_text(c.points.back().y) + ".";
  return text;
}

std::string Drawing::text() const {
  std::string curves;
  for (const Series& c : chart_.curves) curves += curve(c);
  const std::string caption =
      element("b", "", escape_html(chart_.title)) +
      (chart_.unit.empty() ? "" : " " + element("span", "", escape_html(chart_.unit))) +
      (y_.log ? " " + element("span", "", "log scale") : "");
  // For the script that turns places back into values.
  char data[200];
  std::snprintf(data, sizeof data,
                " data-x=\"%.9g %.9g 0\" data-y=\"%.9g %.9g %d\" data-plot=\"%g %g %g %g\"", x_.low,
                x_.high, y_.low, y_.high, y_.log ? 1 : 0, left, width - right, top,
                height - bottom);
  return element("figure", "class=\"chart\"",
                 element("figcaption", "", caption) + legend() +
                     "<div class=\"plot\"><svg role=\"img\" aria-label=\"" + escape_html(spoken()) +
                     "\" viewBox=\"0 0 " + coordinate(width) + " " + coordinate(height) +
                     "\" data-name=\"" + escape_html(chart_.x_name) + "\"" + data + ">" + grid() +
                     curves + "</svg></div>");
}

}  // namespace

std::vector<Point> thinned(const std::vector<Point>& points, size_t most) {
  if (points.size() <= most) return points;
  const size_t stretches = std::max<size_t>(1, most / 2);
  std::vector<Point> result;
  for (size_t s = 0; s < stretches; ++s) {
    const size_t begin = s * points.size() / stretches, end = (s + 1) * points.size() / stretches;
    size_t low = end, high = end, lost = end;
    for (size_t i = begin; i < end; ++i) {
      const double y = points[i].y;
      if (!std::isfinite(y)) {
        lost = std::min(lost, i);
        continue;
      }
      if (low == end || y < points[low].y) low = i;
      if (high == end || y > points[high].y) high = i;
    }
    std::vector<size_t> kept{low, high, lost};
    if (s == 0) kept.push_back(0);
    if (s + 1 == stretches) kept.push_back(points.size() - 1);
    std::ranges::sort(kept);
    kept.erase(std::unique(kept.begin(), kept.end()), kept.end());
    for (const size_t i : kept)
      if (i < end) result.push_back(points[i]);
  }
  return result;
}

std::string draw(const Chart& chart) {
  const bool empty =
      std::ranges::all_of(chart.curves, [](const Series& c) { return c.points.empty(); });
  return empty ? "" : Drawing(chart).text();
}

}  // namespace bv

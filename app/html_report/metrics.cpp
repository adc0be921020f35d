#include "app/html_report/metrics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "base/error.h"
#include "base/files/file_io.h"
#include "base/text.h"

namespace bv {
namespace {

constexpr uint64_t chunk_bytes = 1 << 20;
constexpr size_t max_points = 2000;  // per curve

}  // namespace

std::vector<Point> thinned(const std::vector<Point>& points, size_t max) {
  if (points.size() <= max) return points;
  const size_t stretches = std::max<size_t>(1, max / 2);
  std::vector<Point> result;
  for (size_t s = 0; s < stretches; ++s) {
    const size_t begin = s * points.size() / stretches, end = (s + 1) * points.size() / stretches;
    size_t low = end, high = end, lost = end;
    for (size_t i = begin; i < end; ++i) {
      const double y = points[i].y;
      if (std::isnan(y)) {
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

void RunMetrics::add(std::string_view line) {
  const std::string number = std::to_string(++lines_);
  try {
    add_record(parse_json_object(line, ""));
  } catch (const UserError& e) {
    std::string_view why = e.what();  // ": line 1, column 4: this is not JSON"
    for (const std::string_view before : {": ", "line 1, "})
      if (why.starts_with(before)) why.remove_prefix(before.size());
    throw UserError(path_ + ", line " + number + ": " + std::string(why) +
                    "; once the run has ended, `sed -i " + number + "d " + shell_word(path_) +
                    "` removes this line");
  }
}

void RunMetrics::add_record(Json object) {
  const Json kind = object.value("kind", Json());
  if (kind == "restart") restarts_.push_back(std::move(object));
  if (kind != "step" && kind != "epoch") return;
  const auto integer = [&](const char* key) {
    const Json value = object.value(key, Json());
    if (!value.is_number_unsigned() || value > std::numeric_limits<int64_t>::max())
      throw UserError(std::string("it has no ") + key);
    return value.get<int64_t>();
  };
  const int64_t step = integer("step");
  last_step_ = std::max(last_step_, step);
  if (kind == "epoch") {
    integer("epoch");
    epochs_.push_back(std::move(object));
    return;
  }
  for (const auto& [key, value] : object.items())
    if (key != "epoch" && key != "step" && (value.is_number() || value.is_null()))
      curves_[key].push_back(
          {static_cast<double>(step),
           value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>()});
}

void RunMetrics::read() {
  const InputFile file(path_);
  std::string left;
  for (uint64_t from = at_; from < file.size();) {
    std::string chunk(std::min(chunk_bytes, file.size() - from), '\0');
    file.read(from, std::as_writable_bytes(std::span(chunk)));
    from += chunk.size();
    left += chunk;
    size_t begin = 0;
    for (size_t end; (end = left.find('\n', begin)) != left.npos; begin = end + 1) {
      add(std::string_view(left).substr(begin, end - begin));
      at_ += end + 1 - begin;
    }
    left.erase(0, begin);
  }
}

Json RunMetrics::curves() const {
  Json curves = Json::object();
  for (const auto& [key, points] : curves_) {
    Json& curve = curves[key] = Json::array();
    for (const auto& [x, y] : thinned(points, max_points))
      curve.push_back({json_number(x), json_number(y)});
  }
  return curves;
}

}  // namespace bv

#include "app/html_report/metrics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "base/error.h"
#include "base/file_io.h"
#include "base/json.h"
#include "base/text.h"

namespace bv {
namespace {

constexpr double none = std::numeric_limits<double>::quiet_NaN();
constexpr uint64_t chunk_bytes = 1 << 20;

}  // namespace

bool MetricTable::has(std::string_view key) const { return !std::isnan(last(key)); }

double MetricTable::at(std::string_view key, size_t row) const {
  const auto column = columns_.find(key);
  return column == columns_.end() || row >= column->second.size() ? none : column->second[row];
}

double MetricTable::last(std::string_view key) const {
  const auto column = columns_.find(key);
  if (column == columns_.end()) return none;
  for (size_t i = column->second.size(); i-- > 0;)
    if (!std::isnan(column->second[i])) return column->second[i];
  return none;
}

void MetricTable::add(const std::map<std::string, double, std::less<>>& line) {
  for (const auto& [key, value] : line) {
    std::vector<double>& column = columns_[key];
    column.resize(rows_, none);
    column.push_back(value);
  }
  ++rows_;
}

void RunMetrics::add(std::string_view line) {
  const JsonValue object = parse_json_object(line, path_ + ", line " + std::to_string(++lines_));
  std::map<std::string, double, std::less<>> numbers;
  std::string kind;
  for (const auto& [key, value] : object.members) {
    if (key == "kind") kind = value.text;
    if (value.kind == JsonValue::Kind::number) numbers[key] = *parse_number(value.text);
  }
  if (kind == "step") steps.add(numbers);
  if (kind == "epoch") epochs.add(numbers);
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

}  // namespace bv

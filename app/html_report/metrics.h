// A run's metrics.jsonl as columns of numbers.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace bv {

// Lines of one kind. NaN: null, or not in the line.
class MetricTable {
 public:
  size_t rows() const { return rows_; }
  bool has(std::string_view key) const;  // a number, in some line
  double at(std::string_view key, size_t row) const;
  double last(std::string_view key) const;  // that there is; NaN: none
  void add(const std::map<std::string, double, std::less<>>& line);

 private:
  size_t rows_ = 0;
  std::map<std::string, std::vector<double>, std::less<>> columns_;  // may be shorter than rows_
};

class RunMetrics {
 public:
  // Throws UserError where the file can't be read.
  explicit RunMetrics(std::string path) : path_(std::move(path)) {}
  // The lines that have been added since the last call. One that isn't complete waits.
  void read();

  MetricTable steps, epochs;

 private:
  void add(std::string_view line);

  std::string path_;
  uint64_t at_ = 0;
  int64_t lines_ = 0;
};

}  // namespace bv

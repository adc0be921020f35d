// A run's metrics.jsonl, read while it grows.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace bv {

struct Point {
  double x = 0, y = 0;  // y NaN: null in the file
};
// At most `max` points, and a few more: the lowest, the highest and the first NaN of each stretch.
std::vector<Point> thinned(const std::vector<Point>& points, size_t max);

class RunMetrics {
 public:
  explicit RunMetrics(std::string path) : path_(std::move(path)) {}
  // The lines that have been added since the last call. One that isn't complete waits. Throws
  // UserError where the file can't be read.
  void read();

  const Json& epochs() const { return epochs_; }  // their lines
  int64_t last_step() const { return last_step_; }
  // The numbers of the steps' lines, thinned: {"loss": [[step, value or null], ...], ...}.
  Json curves() const;

 private:
  void add(std::string_view line);

  std::string path_;
  uint64_t at_ = 0;
  int64_t lines_ = 0, last_step_ = 0;
  Json epochs_ = Json::array();
  std::map<std::string, std::vector<Point>> curves_;
};

}  // namespace bv

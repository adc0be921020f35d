// Reads a run's metrics.jsonl while it grows.
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
// About `max` points: the lowest, the highest and the first NaN of each of max / 2 ranges, and the
// first and the last point.
std::vector<Point> thinned(const std::vector<Point>& points, size_t max);

class RunMetrics {
 public:
  explicit RunMetrics(std::string path) : path_(std::move(path)) {}
  // Reads the lines added since the last call, except for an incomplete one. Throws UserError if
  // the file can't be read or a line is damaged; it says how to remove that line.
  void read();

  const Json& epochs() const { return epochs_; }      // the epochs' lines
  const Json& restarts() const { return restarts_; }  // the restarts' lines
  int64_t last_step() const { return last_step_; }
  // The values in the lines of steps, thinned: {"loss": [[step, value or null], ...], ...}.
  Json curves() const;

 private:
  void add(std::string_view line);
  void add_record(Json record);

  std::string path_;
  uint64_t at_ = 0;
  int64_t lines_ = 0, last_step_ = 0;
  Json epochs_ = Json::array(), restarts_ = Json::array();
  std::map<std::string, std::vector<Point>> curves_;
};

}  // namespace bv

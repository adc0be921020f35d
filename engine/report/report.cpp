#include "engine/report/report.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "engine/base/text.h"
#include "engine/training/plan.h"

namespace bv {

std::vector<std::string> head_lines(const Setup& s, const RunHead& head) {
  const Options& o = s.options;
  const std::string size = std::to_string(*o.image_size);
  std::vector<std::string> lines = {
      s.model.name + ": " + std::to_string(s.graph.parameter_count()) + " parameters, " + size +
          "x" + size + " images" +
          (o.patch_size ? " in patches of " + std::to_string(*o.patch_size) : ""),
      "device: " + head.device + "; " + std::to_string(s.world) +
          (s.world == 1 ? " process" : " processes") + ", local batch " +
          std::to_string(*o.local_batch),
      "data: " + s.data.description,
      "memory: " + format_bytes(head.peak_bytes) + " planned per process (--plan shows it)",
      "run: " + o.out + ", " + std::to_string(head.steps_end) + " steps" +
          (head.steps_done ? ", resumed after step " + std::to_string(head.steps_done) : "")};
  lines.insert(lines.end(), s.notes.begin(), s.notes.end());
  return lines;
}

std::vector<std::string> end_lines(const Options& o, const RunEnd& end) {
  const std::string command = "./launcher --resume " + o.out;
  if (end.stopped)
    return {"stopped after step " + std::to_string(end.step) + "; saved. Resume with: " + command};
  const std::string more = end.capped ? " --steps " + std::to_string(2 * end.step)
                                      : " --epochs " + format_number(2 * o.epochs);
  return {"weights: " + o.out + "/last/weights.safetensors" +
              (end.has_best ? ", best: " + o.out + "/best/weights.safetensors" : ""),
          "train longer with: " + command + more};
}

std::vector<std::string> profile_lines(const std::map<std::string, double>& profile) {
  std::vector<std::pair<double, std::string>> rows;
  double total = 0;
  for (const auto& [type, seconds] : profile) {
    rows.emplace_back(seconds, type);
    total += seconds;
  }
  std::sort(rows.rbegin(), rows.rend());
  rows.emplace_back(total, "total");
  std::vector<std::string> lines;
  for (const auto& [seconds, type] : rows) {
    char text[80];
    std::snprintf(text, sizeof text, "%-16s %8.3f s %5.1f%%", type.c_str(), seconds,
                  100 * seconds / total);
    lines.emplace_back(text);
  }
  return lines;
}

}  // namespace bv

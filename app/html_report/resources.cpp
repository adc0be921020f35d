// Where a run's time and memory go.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "app/html_report/markup/axis.h"
#include "app/html_report/markup/html.h"
#include "app/html_report/markup/pieces.h"
#include "app/html_report/sections.h"
#include "base/text.h"
#include "engine/model/plan.h"

namespace bv {
namespace {

// From the step lines, where --profile wasn't given: means over the run.
std::string step_times(const MetricTable& steps) {
  double all = 0, data = 0, count = 0;
  for (size_t row = 0; row < steps.rows(); ++row) {
    const double step = steps.at("step_seconds", row), waited = steps.at("data_seconds", row);
    if (std::isnan(step) || std::isnan(waited)) continue;
    all += step, data += waited, ++count;
  }
  if (count == 0) return "";
  const auto text = [&](double sum) { return value_text(1000 * sum / count) + " ms"; };
  return share_table("part of a step", "mean",
                     {{"computing", all - data, text(all - data)},
                      {"waiting for data", data, text(data)}}) +
         note("--profile would say which operations take the time.");
}

constexpr double width = 800, height = 260, left = 64, right = 8, top = 8, bottom = 36;

// Each tensor of scratch memory as a box: across, while it lives; upwards, its place.
std::string scratch_map(const RunFacts& f) {
  int64_t end = 0;
  int last = f.forward_nodes;
  for (const ScratchTensor& t : f.scratch)
    end = std::max(end, t.offset + t.bytes), last = std::max(last, t.last + 1);
  if (end == 0) return "";
  const double mebi = 1 << 20;
  const Axis up = make_axis(0, static_cast<double>(end) / mebi, AxisScale::linear, 5);
  const auto x = [&](double time) { return left + time / last * (width - left - right); };
  const auto y = [&](double bytes) {
    return top + (1 - up.place(bytes / mebi)) * (height - top - bottom);
  };
  std::string text;
  char buffer[200];
  const auto put = [&](auto... values) {
    std::snprintf(buffer, sizeof buffer, values...);
    text += buffer;
  };
  for (const Tick& t : up.ticks) {
    put("<line class=\"rule\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/>", left,
        width - right, y(t.at * mebi), y(t.at * mebi));
    put("<text class=\"end\" x=\"%.1f\" y=\"%.1f\">%s</text>", left - 6, y(t.at * mebi) + 4,
        t.label.c_str());
  }
  for (const ScratchTensor& t : f.scratch) {
    const double begin = x(t.first), low = y(static_cast<double>(t.offset + t.bytes));
    put("<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\">", begin, low,
        x(t.last + 1) - begin, y(static_cast<double>(t.offset)) - low);
    text += "<title>" + escape_html(t.name) + ", " + format_bytes(static_cast<size_t>(t.bytes)) +
            "</title></rect>";
  }
  put("<line class=\"turn\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/>", x(f.forward_nodes),
      x(f.forward_nodes), top, height - bottom);
  put("<text class=\"middle\" x=\"%.1f\" y=\"%.1f\">forward, %d operations</text>",
      x(f.forward_nodes / 2.0), height - 12, f.forward_nodes);
  put("<text class=\"middle\" x=\"%.1f\" y=\"%.1f\">backward</text>",
      x((f.forward_nodes + last) / 2.0), height - 12);
  std::snprintf(buffer, sizeof buffer, "viewBox=\"0 0 %.0f %.0f\"", width, height);
  return element(
      "figure", "class=\"map\"",
      element("figcaption", "", "<span>MiB; each box is a tensor while it lives</span>") +
          element("div", "class=\"scroll\" tabindex=\"0\"",
                  "<svg role=\"img\" aria-label=\"Scratch memory over a step: " +
                      format_bytes(static_cast<size_t>(end)) + " for " +
                      std::to_string(f.scratch.size()) + " tensors\" " + buffer + ">" + text +
                      "</svg>"));
}

}  // namespace

std::string time_section(const RunReport& run) {
  if (!run.facts || run.facts->seconds.empty())
    return section("Time", step_times(run.metrics.steps));
  std::vector<Share> shares;
  for (const auto& [name, seconds] : run.facts->seconds)
    shares.push_back({name, seconds, duration(seconds)});
  return section("Time by kind of operation",
                 note("Of rank 0, since the start or the last resume; --profile waits for each "
                      "operation to end, which costs some speed.") +
                     share_table("operation", "time", shares));
}

std::string memory_section(const RunReport& run) {
  if (!run.facts || run.facts->memory.empty()) return "";
  std::vector<Share> shares;
  double all = 0;
  for (const auto& [name, bytes] : run.facts->memory) {
    shares.push_back({name, bytes, format_bytes(static_cast<size_t>(bytes))});
    all += bytes;
  }
  return section("Memory plan", note(format_bytes(static_cast<size_t>(all)) +
                                     " in each process, all taken before the first step.") +
                                    share_table("what", "size", shares));
}

std::string scratch_section(const RunReport& run) {
  return run.facts ? section("Scratch memory over a step", scratch_map(*run.facts)) : "";
}

}  // namespace bv

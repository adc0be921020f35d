// What a page begins with: what was run, how it ended, the figures that people ask for first.
#include <algorithm>
#include <cmath>

#include "app/html_report/markup/axis.h"
#include "app/html_report/markup/html.h"
#include "app/html_report/markup/pieces.h"
#include "app/html_report/results.h"
#include "app/html_report/sections.h"
#include "base/text.h"
#include "engine/model/plan.h"

namespace bv {
namespace {

std::string tile(const std::string& name, const std::string& value, const std::string& more = "") {
  return element("div", "class=\"tile\"",
                 element("span", "", escape_html(name)) + element("b", "", escape_html(value)) +
                     (more.empty() ? "" : element("span", "", escape_html(more))));
}

std::string tiles(const RunReport& run) {
  const MetricTable& epochs = run.metrics.epochs;
  const Best best = best_of(run.metrics);
  std::string text;
  if (best.row >= 0) {
    const auto row = static_cast<size_t>(best.row);
    text += tile("best val top-1", percent(best.top1),
                 "epoch " + value_text(epochs.at("epoch", row)) +
                     (best.averaged ? ", averaged weights" : ""));
    text +=
        tile("its val loss", figure_text(epochs.at(best.averaged ? "ema_loss" : "val_loss", row)));
  }
  if (epochs.has("train_loss"))
    text += tile("train loss", figure_text(epochs.last("train_loss")), "last epoch");
  else if (run.metrics.steps.has("loss"))
    text += tile("loss", figure_text(run.metrics.steps.last("loss")), "last logged step");
  const MetricTable& rates = epochs.has("images_per_second") ? epochs : run.metrics.steps;
  if (rates.has("images_per_second"))
    text += tile("images/s", figure_text(rates.last("images_per_second")), "in training");
  if (epochs.has("seconds")) text += tile("time", duration(seconds_of(run.metrics)));
  if (run.facts && run.facts->parameters > 0)
    text += tile("parameters",
                 format_number(static_cast<double>(run.facts->parameters) / 1e6, 3) + " M");
  if (epochs.has("peak_memory_bytes"))
    text += tile("memory", format_bytes(static_cast<size_t>(epochs.last("peak_memory_bytes"))),
                 "planned per process");
  return element("div", "class=\"tiles\"", text);
}

}  // namespace

std::string head_section(const RunReport& run) {
  std::string text = element(
      "h1", "",
      escape_html(run.option("model")) + " " + element("span", "", escape_html(run.name())));
  const std::string data = run.option("data");
  std::vector<std::string> about;
  if (run.facts) {
    about = {run.facts->data, run.facts->device + ", " + run.option("precision"),
             counted(run.facts->processes, "process")};
  } else {
    about = {data.empty() ? "built-in mosaics" : data,
             run.option("device") + ", " + run.option("precision"),
             counted(parse_integer(run.option("nproc")).value_or(1), "process")};
  }
  text += element("p", "class=\"about\"", escape_html(join(about, " · ")));
  const bool failed = run.facts && ended_badly(*run.facts);
  text +=
      element("p", failed ? "class=\"state bad\"" : "class=\"state\"", escape_html(state_of(run)));
  return element("header", "", text + tiles(run)) + "\n";
}

}  // namespace bv

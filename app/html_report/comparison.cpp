// Several runs side by side.
#include <algorithm>
#include <cmath>
#include <map>

#include "app/html_report/markup/axis.h"
#include "app/html_report/markup/html.h"
#include "app/html_report/markup/pieces.h"
#include "app/html_report/results.h"
#include "app/html_report/sections.h"
#include "base/text.h"

namespace bv {

std::string run_label(std::span<const RunReport> runs, size_t which) {
  const std::string name = runs[which].name();
  const auto same =
      std::ranges::count_if(runs, [&](const RunReport& run) { return run.name() == name; });
  return same > 1 ? runs[which].folder : name;
}

std::string comparison_head(std::span<const RunReport> runs) {
  std::vector<std::vector<Cell>> rows;
  for (size_t r = 0; r < runs.size(); ++r) {
    const RunReport& run = runs[r];
    const Best best = best_of(run.metrics);
    const MetricTable& epochs = run.metrics.epochs;
    const double loss =
        best.row < 0 ? NAN : epochs.at(best.averaged ? "ema_loss" : "val_loss", size_t(best.row));
    const std::string sample = "<i class=\"swatch s" + std::to_string(r % 6) + "\"></i>";
    const std::string data = run.option("data");
    rows.push_back({{sample + escape_html(run_label(runs, r))},
                    {escape_html(run.option("model"))},
                    {escape_html(data.empty() ? "built-in" : data)},
                    {best.row < 0 ? "–" : percent(best.top1), true},
                    {best.row < 0 ? "–" : figure_text(epochs.at("epoch", size_t(best.row))), true},
                    {figure_text(loss), true},
                    {figure_text(epochs.last("train_loss")), true},
                    {figure_text(last_step(run.metrics)), true},
                    {figure_text(epochs.last("images_per_second")), true},
                    {duration(seconds_of(run.metrics)), true}});
    if (run.facts && ended_badly(*run.facts))
      rows.back()[0].html += " <em class=\"bad\">ended by an error</em>";
  }
  return element("header", "",
                 element("h1", "", std::to_string(runs.size()) + " runs compared") +
                     table({{"run"},
                            {"model"},
                            {"data"},
                            {"best val top-1", true},
                            {"epoch", true},
                            {"its val loss", true},
                            {"train loss", true},
                            {"steps", true},
                            {"images/s", true},
                            {"time", true}},
                           rows)) +
         "\n";
}

std::string differences_section(std::span<const RunReport> runs) {
  std::vector<Cell> head{{"option"}};
  std::vector<std::string> names;  // of all runs, in the order of the first that has it
  for (size_t r = 0; r < runs.size(); ++r) {
    head.push_back({escape_html(run_label(runs, r))});
    for (const auto& [name, value] : runs[r].config)
      if (std::ranges::find(names, name) == names.end()) names.push_back(name);
  }
  std::vector<std::vector<Cell>> rows;
  for (const std::string& name : names) {
    std::vector<Cell> cells{{escape_html(name)}};
    bool differ = false;
    for (const RunReport& run : runs) {
      const std::string value = run.option(name);
      differ = differ || value != runs[0].option(name);
      cells.push_back({value.empty() ? "–" : escape_html(value)});
    }
    if (differ) rows.push_back(std::move(cells));
  }
  return section("Options that differ", rows.empty()
                                            ? note("None: all runs have the same configuration.")
                                            : table(head, rows));
}

}  // namespace bv

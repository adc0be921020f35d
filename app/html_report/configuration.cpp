// The figures of each epoch, and what it takes to repeat the run.
#include "app/html_report/markup/axis.h"
#include "app/html_report/markup/html.h"
#include "app/html_report/markup/pieces.h"
#include "app/html_report/sections.h"
#include "base/text.h"

namespace bv {
namespace {

constexpr size_t max_short = 15, max_rows = 2000;

}  // namespace

std::string epochs_section(const RunReport& run) {
  const MetricTable& epochs = run.metrics.epochs;
  struct Column {
    const char* key;
    const char* title;
    std::string (*text)(double);
  };
  std::vector<Column> columns;
  for (const Column& c : {Column{"epoch", "epoch", figure_text},
                          {"step", "step", figure_text},
                          {"train_loss", "train loss", figure_text},
                          {"train_top1", "train top-1", percent},
                          {"val_loss", "val loss", figure_text},
                          {"val_top1", "val top-1", percent},
                          {"val_top5", "val top-5", percent},
                          {"ema_loss", "averaged loss", figure_text},
                          {"ema_top1", "averaged top-1", percent},
                          {"lr", "lr", figure_text},
                          {"images_per_second", "images/s", figure_text},
                          {"seconds", "time", duration}})
    if (epochs.has(c.key)) columns.push_back(c);
  std::vector<Cell> head;
  for (const Column& c : columns) head.push_back({c.title, true});
  std::vector<std::vector<Cell>> rows;
  const size_t first = epochs.rows() > max_rows ? epochs.rows() - max_rows : 0;
  for (size_t row = epochs.rows(); row-- > first;) {  // the newest first
    std::vector<Cell> cells;
    for (const Column& c : columns) cells.push_back({c.text(epochs.at(c.key, row)), true});
    rows.push_back(std::move(cells));
  }
  if (rows.empty()) return "";
  const std::string left_out = first > 0 ? note("The last " + std::to_string(max_rows) + " of " +
                                                std::to_string(epochs.rows()) + " epochs.")
                                         : "";
  return section("Epochs", left_out + table(head, rows, rows.size() > max_short));
}

std::string configuration_section(const RunReport& run) {
  std::vector<std::vector<Cell>> rows;
  for (const auto& [name, value] : run.config)
    if (!value.empty()) rows.push_back({{escape_html(name)}, {escape_html(value)}});
  const std::string command = run.facts ? run.facts->command : "";
  std::string text;
  if (!command.empty())
    text += note("To repeat it:") + element("pre", "tabindex=\"0\"", escape_html(command));
  text += element("details", "",
                  element("summary", "", "all options, as in config.json") +
                      table({{"option"}, {"value"}}, rows));
  return section("Configuration", text);
}

}  // namespace bv

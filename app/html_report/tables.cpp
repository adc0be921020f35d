#include "app/html_report/tables.h"

#include <algorithm>
#include <utility>

#include "base/text.h"

namespace bv {
namespace {

std::string cell(const char* tag, const std::string& text) {
  return "<" + std::string(tag) + ">" + escape_html(text) + "</" + tag + ">";
}

std::string text_of(const Json& value) {
  return value.is_structured() ? to_line(value) : scalar_text(value);
}

// [{key: value, ...}, ...] as a table: one row per object, one column per key.
std::string table_of(const std::string& title, const Json& rows) {
  if (rows.empty()) return "";
  std::vector<std::string> keys;
  for (const Json& row : rows)
    for (const auto& [key, value] : row.items())
      if (std::ranges::find(keys, key) == keys.end()) keys.push_back(key);
  std::string html = cell("h3", title) + "\n<table><tr>";
  for (const std::string& key : keys) html += cell("th", key);
  for (const Json& row : rows) {
    html += "</tr>\n<tr>";
    for (const std::string& key : keys) html += cell("td", text_of(row.value(key, Json())));
  }
  return html + "</tr></table>\n";
}

}  // namespace

std::string escape_html(std::string_view text) {
  constexpr std::pair<char, std::string_view> entities[] = {
      {'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'"', "&quot;"}, {'\'', "&#39;"}};
  std::string result = printable(text, text.npos);
  for (const auto& [c, entity] : entities) result = join(split(result, c), entity);
  return result;
}

std::string tables(const std::string& title, const Json& runs) {
  std::string html =
      cell("h1", title) + cell("p", "Charts need JavaScript; these are the figures.");
  for (const Json& run : runs) {
    html += "\n" + cell("h2", run["label"]) + cell("p", run["state"]);
    for (const Json& restart : run["restarts"]) html += cell("p", restart);
    html += table_of("Epochs", run["epochs"]);
    const Json report = run["report"];
    if (const Json last = report.is_null() ? report : report.value("evaluated", Json());
        !last.is_null())
      html += table_of("Classes after epoch " + last["epoch"].dump(), last["scores"]);
    Json options = Json::array();
    for (const auto& [option, value] : run["config"].items())
      options.push_back({{"option", option}, {"value", value}});
    html += table_of("Configuration", options);
  }
  return html;
}

}  // namespace bv

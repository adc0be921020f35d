#include "app/html_report/markup/pieces.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>

#include "app/html_report/markup/axis.h"
#include "app/html_report/markup/html.h"

namespace bv {
namespace {

std::string row(const char* tag, const std::vector<Cell>& cells) {
  std::string text;
  for (const Cell& cell : cells) {
    // Their columns are named, and a row by its first cell.
    const bool names_row = tag[1] == 'd' && &cell == cells.data();
    const std::string scope = tag[1] == 'h' ? "scope=\"col\"" : names_row ? "scope=\"row\"" : "";
    const std::string side = cell.number ? "class=\"n\"" : "";
    text += element(names_row ? "th" : tag, scope + (scope.empty() ? "" : " ") + side, cell.html);
  }
  return element("tr", "", text);
}

}  // namespace

std::string section(const std::string& title, const std::string& content) {
  if (content.empty()) return "";
  return element("section", "", element("h2", "", escape_html(title)) + "\n" + content) + "\n";
}

std::string note(const std::string& text) {
  return element("p", "class=\"note\"", escape_html(text));
}

std::string table(const std::vector<Cell>& head, const std::vector<std::vector<Cell>>& rows,
                  bool tall) {
  std::string body;
  for (const auto& cells : rows) body += row("td", cells) + "\n";
  return element(
      "div", tall ? "class=\"scroll tall\" tabindex=\"0\"" : "class=\"scroll\"",
      element("table", "", element("thead", "", row("th", head)) + element("tbody", "", body)));
}

std::string share_table(const std::string& what, const std::string& measure,
                        std::vector<Share> shares) {
  std::ranges::stable_sort(shares, std::greater{}, &Share::value);
  const double all = std::accumulate(shares.begin(), shares.end(), 0.0,
                                     [](double sum, const Share& s) { return sum + s.value; });
  if (!(all > 0)) return "";
  std::vector<std::vector<Cell>> rows;
  for (const Share& s : shares) {
    char part[32], width[32];
    std::snprintf(part, sizeof part, "%.1f%%", 100 * s.value / all);
    std::snprintf(width, sizeof width, "%.2f%%", 100 * s.value / shares.front().value);
    rows.push_back(
        {{escape_html(s.name)},
         {escape_html(s.text), true},
         {part, true},
         {"<div class=\"bar\"><i style=\"width:" + std::string(width) + "\"></i></div>"}});
  }
  return table({{escape_html(what)}, {escape_html(measure), true}, {"share", true}, {""}}, rows);
}

std::string percent(double fraction) {
  if (std::isnan(fraction)) return "–";
  char text[32];
  std::snprintf(text, sizeof text, "%.2f%%", 100 * fraction);
  return text;
}

std::string duration(double seconds) {
  char text[64];
  const auto whole = static_cast<long long>(std::llround(seconds));
  if (std::isnan(seconds)) return "–";
  if (seconds < 10)
    std::snprintf(text, sizeof text, "%.1f s", seconds);
  else if (whole < 60)
    std::snprintf(text, sizeof text, "%lld s", whole);
  else if (whole < 3600)
    std::snprintf(text, sizeof text, "%lld min %lld s", whole / 60, whole % 60);
  else
    std::snprintf(text, sizeof text, "%lld h %lld min", whole / 3600, whole % 3600 / 60);
  return text;
}

std::string figure_text(double value) { return std::isnan(value) ? "–" : value_text(value); }

}  // namespace bv

// Small pieces that several sections are made of.
#pragma once
#include <string>
#include <utility>
#include <vector>

namespace bv {

std::string section(const std::string& title, const std::string& content);
// A paragraph; `text` is escaped.
std::string note(const std::string& text);

struct Cell {
  std::string html;
  bool number = false;  // set right
};
// Tables scroll sideways by themselves where the screen is narrow; `tall` ones downwards, too.
std::string table(const std::vector<Cell>& head, const std::vector<std::vector<Cell>>& rows,
                  bool tall = false);

// Shares of a whole, largest first: a bar, the value's text and its percentage for each.
struct Share {
  std::string name;
  double value;
  std::string text;
};
std::string share_table(const std::string& what, const std::string& measure,
                        std::vector<Share> shares);

std::string percent(double fraction);   // "97.31%"
std::string duration(double seconds);   // "42 s", "1 min 5 s", "2 h 3 min"
std::string figure_text(double value);  // value_text, or a dash where there is none

}  // namespace bv

#include "engine/options/command.h"

#include <algorithm>

namespace bv {

std::vector<const OptionRow*> Command::rows() const {
  std::vector<const OptionRow*> rows;
  for (const OptionRow& row : own) rows.push_back(&row);
  const auto taken = [&](std::string_view word) { return std::ranges::count(takes, word) > 0; };
  for (const OptionGroup& group : option_groups())
    for (const OptionRow& row : group.rows)
      if ((taken(group.title) || taken(row.name)) &&
          std::ranges::find(own, row.name, &OptionRow::name) == own.end())
        rows.push_back(&row);
  return rows;
}

bool Command::owns(const OptionRow& row) const {
  return std::ranges::find(own, &row, [](const OptionRow& r) { return &r; }) != own.end();
}

bool Command::trains() const { return std::ranges::count(takes, "model") > 0; }

}  // namespace bv

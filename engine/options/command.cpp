#include "engine/options/command.h"

#include <algorithm>

namespace bv {
namespace {

constexpr OptionRow common[] = {
    {"config", "FILE", field<&CommonOptions::config>,
     "options from a file in the format of a run's config.json"},
    {"version", "", field<&CommonOptions::version>,
     "print the version, and what it was built with"},
    {.name = "help",
     .field = field<&CommonOptions::help>,
     .help = "print this help, with the options that most runs need",
     .letter = 'h'},
    {"help_all", "", field<&CommonOptions::help_all>, "print the help of all options"}};

}  // namespace

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

std::span<const OptionRow> every_commands_rows() { return common; }
std::span<const OptionRow> common_rows(const Command& command) {
  return every_commands_rows().subspan(command.trains() ? 0 : 1);
}

}  // namespace bv

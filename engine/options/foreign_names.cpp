#include "engine/options/foreign_names.h"

#include <algorithm>

#include "base/json.h"
#include "base/text.h"

// The assembler embeds the table; mk/compile.mk makes this object depend on it. In it, "options" and
// "commands" have lists of names and what to type instead, or a sentence that begins with "not";
// "values", how values of our options begin elsewhere; "units", what their numbers count, and
// suffixes' factors.
asm(R"(
  .section .rodata
foreign_names_begin:
  .incbin "engine/options/foreign_names.json"
  .byte 0
  .text
)");

extern "C" const char foreign_names_begin[];

namespace bv {
namespace {

// A group of foreign names and what to use instead.
const Json& table(const char* group) {
  static const Json all = parse_json_object(foreign_names_begin, "foreign_names.json");
  return all.at(group);
}

// The row of a group whose key, a list of names, has `name`; else null.
const Json* row_for(const char* group, std::string_view name) {
  const std::string word = " " + std::string(name) + " ";
  for (const auto& [names, row] : table(group).items())
    if ((" " + names + " ").find(word) != std::string::npos) return &row;
  return nullptr;
}

std::string advice_in(const char* group, std::string_view name) {
  const Json* const found = row_for(group, name);
  if (!found) return "";
  const std::string advice = *found;
  return (advice.starts_with("not") ? ": " : ": use ") + advice;
}

}  // namespace

std::string advice_for_foreign_value(std::string_view option, std::string_view value) {
  std::string advice, longest;
  if (const Json* const found = row_for("values", option))
    for (const auto& [beginning, ours] : found->items())
      if (value.starts_with(beginning) && beginning.size() > longest.size())
        longest = beginning, advice = " (use " + ours.get<std::string>() + ")";
  return advice;
}

std::string unit_of(std::string_view option) {
  const Json* const unit = row_for("units", option);
  return unit ? unit->at("of").get<std::string>() : "";
}

std::optional<double> number_meant(std::string_view option, std::string_view text, bool whole) {
  std::string plain;
  for (const char c : text)
    if (c != ',' && c != ' ')
      plain += c;
    else if (c == ',' && !whole)
      plain += '.';
  size_t end = plain.size();
  std::optional<double> number;
  while (end > 0 && !(number = parse_number(std::string_view(plain).substr(0, end)))) --end;
  if (!number) return {};
  const std::string suffix = plain.substr(end);
  const Json* const unit = row_for("units", option);
  return *number * (unit && unit->contains(suffix)   ? unit->at(suffix).get<double>()
                    : suffix == "%"                  ? .01
                    : suffix == "k" || suffix == "K" ? 1000
                                                     : 1);
}

std::string advice_for_foreign(std::string_view flag) {
  std::string word(flag);
  std::ranges::replace(word, '_', '-');
  return advice_in("options", word);
}

std::string advice_for_foreign_command(std::string_view command) {
  return advice_in("commands", command);
}

}  // namespace bv

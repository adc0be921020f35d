#include "engine/options/foreign_names.h"

#include <algorithm>

#include "base/json.h"

// The assembler embeds the table; mk/compile.mk makes this object depend on it. In it, "options" has
// lists of names and what to type instead, or a sentence that begins with "not"; "policies", how
// values of --auto-augment begin.
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

}  // namespace

std::string advice_for_foreign_policy(std::string_view policy) {
  for (const auto& [beginning, ours] : table("policies").items())
    if (policy.starts_with(beginning)) return " (use " + ours.get<std::string>() + ")";
  return "";
}

std::string advice_for_foreign(std::string_view flag) {
  std::string word = " " + std::string(flag) + " ";
  std::ranges::replace(word, '_', '-');
  for (const auto& [names, ours] : table("options").items())
    if ((" " + names + " ").find(word) != std::string::npos) {
      const std::string advice = ours;
      return (advice.starts_with("not") ? ": " : ": use ") + advice;
    }
  return "";
}

}  // namespace bv

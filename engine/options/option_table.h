// The table of options: names, types, allowed values, where each may be given, help. The command
// line, config files, recipes, config.json, --help and the README are all driven by it.
#pragma once
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "engine/options/options.h"

namespace bv {

// The bounds of a number; an open bound is excluded.
struct Range {
  double min = -std::numeric_limits<double>::max(), max = std::numeric_limits<double>::max();
  bool min_open = false, max_open = false;
};

template <class T>
using Member = T Options::*;
using AnyMember =
    std::variant<Member<std::string>, Member<bool>, Member<int>, Member<int64_t>, Member<uint64_t>,
                 Member<double>, Member<std::optional<int>>, Member<std::optional<int64_t>>,
                 Member<std::optional<double>>, Member<std::array<double, 2>>,
                 Member<std::optional<std::array<double, 2>>>,
                 Member<std::optional<std::array<double, 3>>>, Member<std::array<double, 4>>,
                 Member<std::vector<std::string>>, Member<std::vector<int>>>;

// Where an option may appear besides the command line and --config.
struct Uses {
  bool recipe = true;   // in a recipe
  bool resume = false;  // with --resume
  bool stored = true;   // in config.json
  bool named = recipe;  // in a recipe by name, models/recipes/NAME.json
};

struct OptionRow {
  std::string_view name;     // in JSON; on the command line --name with dashes for underscores
  std::string_view metavar;  // N; a|b|c lists the allowed values; a flag has none
  AnyMember member;
  std::string_view help;
  Range range = {};
  Uses uses = {};
  char letter = 0;          // -n
  bool positional = false;  // a word without --, or several where it is a list; [X]: optional

  bool is_choice() const { return !positional && metavar.find('|') != metavar.npos; }
  bool is_flag() const { return std::holds_alternative<Member<bool>>(member); }
  bool is_list() const { return member.index() >= 9; }
  bool is_text() const { return std::holds_alternative<Member<std::string>>(member); }
  std::string flag() const;  // --image-size; of a word by position, its metavar
};

// A command's word without --.
constexpr OptionRow positional(std::string_view name, std::string_view metavar, AnyMember member,
                               std::string_view help) {
  return {.name = name, .metavar = metavar, .member = member, .help = help, .positional = true};
}

struct OptionGroup {
  std::string_view title;
  std::span<const OptionRow> rows;
};
std::span<const OptionGroup> option_groups();         // of training
const OptionRow* find_option(std::string_view name);  // null if there is none
std::vector<std::string> option_names();

}  // namespace bv

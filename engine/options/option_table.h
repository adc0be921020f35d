// The table of options: what there is, what it may be, where it may be given, what it is for.
// Command line, config files, recipes, config.json, --help and the README all read this.
#pragma once
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "engine/options/options.h"

namespace bv {

// An option's value as text: one item, or several of a list.
using Items = std::vector<std::string>;
// Options that were given somewhere, by name.
using Values = std::map<std::string, Items, std::less<>>;

// The bounds of a number; an open one is not itself allowed.
struct Range {
  double min = -std::numeric_limits<double>::max(), max = std::numeric_limits<double>::max();
  bool min_open = false, max_open = false;
};

template <class T>
using Member = T Options::*;
using AnyMember =
    std::variant<Member<std::string>, Member<bool>, Member<int>, Member<int64_t>, Member<uint64_t>,
                 Member<double>, Member<std::optional<int>>, Member<std::optional<int64_t>>,
                 Member<std::array<double, 2>>, Member<std::optional<std::array<double, 3>>>,
                 Member<std::vector<std::string>>>;

struct OptionRow {
  std::string_view name;     // in JSON; on the command line --name with dashes for underscores
  char letter = 0;           // -n
  std::string_view metavar;  // N; for a choice a|b|c, which lists all that is allowed
  AnyMember member;
  std::string_view help;
  Range range = {};
  bool recipe = true;   // may stand in a model's recipe
  bool resume = false;  // may be given anew with --resume
  bool stored = true;   // is written to config.json

  bool is_choice() const { return metavar.find('|') != metavar.npos; }
  bool is_flag() const { return std::holds_alternative<Member<bool>>(member); }
  bool is_list() const { return member.index() >= 8; }
  bool is_text() const { return std::holds_alternative<Member<std::string>>(member); }
  std::string flag() const;  // --image-size
};

struct OptionGroup {
  std::string_view title;
  std::vector<OptionRow> rows;
};
std::span<const OptionGroup> option_groups();
const OptionRow* find_option(std::string_view name);  // null: there is none
std::vector<std::string> option_names();

// Sets the option to what the items say. Throws UserError: `subject` ("--lr abc"), then the reason.
void assign(Options&, const OptionRow&, const Items&, const std::string& subject);
// The option's value, as assign takes it; no items where it is not set.
Items items_of(const Options&, const OptionRow&);
// The built-in default as text; empty where there is none.
std::string default_of(const OptionRow&);

}  // namespace bv

// The command line: a command with its options, or a text to print instead of running one.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/options/option_values.h"

namespace bv {

struct CommandLine;

// A row of the table of commands: ./launcher NAME ...
struct Command {
  std::string_view name;   // one word or two: "preview", "data split"
  std::string_view usage;  // the words after the name
  std::string_view summary;
  std::span<const OptionRow> own = {};           // the command's own options
  std::span<const std::string_view> takes = {};  // training options: titles of groups or names
  int (*run)(const CommandLine&, const std::vector<std::string>& argv);
  // The process may become a launcher or a worker, which handle stop signals themselves.
  bool in_processes = false;

  // The command's own rows, then the training options it takes, except those that an own row hides.
  std::vector<const OptionRow*> rows() const;
  bool owns(const OptionRow&) const;
  bool trains() const;  // takes a MODEL with its recipe, and --config
};

struct CommandLine {
  struct Print {
    std::string text;
    int exit_code;  // 2, with the text on stderr, if no command was given
  };
  const Command* command = nullptr;
  std::optional<Print> print;  // --help, --version ...: print this and exit
  Values values;               // training options, by name
  Values own;                  // the command's own options
  std::string config;          // --config FILE
};

// The options of every command; --config only for those that train.
std::span<const OptionRow> common_rows(const Command&);

// The values of the command's own options as a struct S, to whose members the command's rows refer.
template <class S>
S own_options(const CommandLine& line) {
  S options;
  for (const OptionRow& row : line.command->own)
    if (const auto given = line.own.find(row.name); given != line.own.end())
      assign(options, row, given->second, row.flag());
  return options;
}

// Parses the arguments after the command's name; `all` is for --help. Throws UserError.
CommandLine parse_arguments(const Command&, std::span<const std::string> arguments,
                            std::span<const Command> all);

// The row whose value would be the word after these arguments: that of the option that they end
// with, else the next positional one. Null if no row takes that word.
const OptionRow* row_of_next(const Command&, std::span<const std::string> arguments);

}  // namespace bv

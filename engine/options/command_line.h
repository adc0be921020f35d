// The command line: a command with the options given, or what to print instead of running.
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
  std::string_view usage;  // after the name
  std::string_view summary;
  std::span<const OptionRow> own;           // the command's own options
  std::span<const std::string_view> takes;  // of training: titles of groups, names of options
  int (*run)(const CommandLine&, const std::vector<std::string>& argv);
  // It may be a launcher or a worker, each of which has its own way to deal with stop signals.
  bool in_processes = false;

  // The command's own rows, then those of training whose names they don't use.
  std::vector<const OptionRow*> rows() const;
  bool owns(const OptionRow&) const;
  bool trains() const;  // takes a training run's options: a MODEL with its recipe, and --config
};

struct CommandLine {
  struct Print {
    std::string text;
    int exit_code;  // 2, and to stderr, if the arguments ask for nothing
  };
  const Command* command = nullptr;
  std::optional<Print> print;  // --help, --version ...: print this and exit
  Values values;               // of training's options, by name
  Values own;                  // of the command's own
  std::string config;          // --config FILE
};

// The command's own options, S, whose members its rows name.
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

}  // namespace bv

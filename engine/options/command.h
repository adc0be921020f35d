// A command, and a command line that asks for one.
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

// The options of every command.
struct CommonOptions {
  bool help = false, help_all = false, version = false, help_markdown = false;
  std::string config;
};
// --config, --version, --help, --help-all, in this order.
std::span<const OptionRow> every_commands_rows();
// The same without --config for a command that doesn't train.
std::span<const OptionRow> common_rows(const Command&);

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

}  // namespace bv

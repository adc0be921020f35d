// The command line: the options given, or what to print instead of running.
#pragma once
#include <optional>
#include <span>
#include <string>

#include "engine/options/option_values.h"

namespace bv {

struct CommandLine {
  struct Print {
    std::string text;
    int exit_code;  // 2, and to stderr, if there are no arguments at all
  };
  std::optional<Print> print;  // --help, --version ...: print this and exit
  Values values;               // by option name
  std::string config;          // --config FILE
};

// Parses the arguments after the program's name. Throws UserError.
CommandLine parse_command_line(std::span<const std::string> arguments);

std::string usage_text();
// With the defaults, or with what `holds` for a model and data.
std::string help_text(const Options* holds = nullptr);
std::string help_markdown();  // the README's option tables

}  // namespace bv

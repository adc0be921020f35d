// Parses the command line: a command with its options, or a text to print instead of running one.
#pragma once
#include <span>
#include <string>

#include "engine/options/command.h"

namespace bv {

// The values of the command's own options as a struct S, to whose members the command's rows refer.
template <class S>
S own_options(const CommandLine& line) {
  S options;
  for (const OptionRow& row : line.command->own)
    if (const auto given = line.own.find(row.name); given != line.own.end())
      assign(options, row, given->second, row.flag());
  return options;
}

// "--epochs" for a word that begins with the dash of a word processor; empty for others.
std::string with_plain_dashes(const std::string& word);

// Parses the arguments after the command's name; `all` is for --help. Throws UserError.
CommandLine parse_arguments(const Command&, std::span<const std::string> arguments,
                            std::span<const Command> all);

// The row whose value would be the word after these arguments: that of the option that they end
// with, else the next positional one. Null if no row takes that word.
const OptionRow* row_of_next(const Command&, std::span<const std::string> arguments);

}  // namespace bv

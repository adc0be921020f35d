// Completion scripts for shells, generated from the tables of commands and options.
#pragma once
#include <string>
#include <vector>

#include "app/commands/commands.h"

namespace bv {

std::string bash_completion();
std::string zsh_completion();
std::string fish_completion();

// The completions of an option's value or a positional argument.
struct Offer {
  enum class Kind : uint8_t { nothing, words, folders, files };
  Kind kind = Kind::nothing;
  std::vector<std::string> words = {};
};
Offer offer_of(const OptionRow&);

// The first part of a row's help; shells show it next to the option.
std::string short_help(const OptionRow&);

// A word that can begin a line, with its description: a model, or the first word of a command.
struct FirstWord {
  std::string word, help;
};
std::vector<FirstWord> first_words();

// The two-word commands with the same first word.
struct Family {
  std::string first;
  std::vector<FirstWord> seconds;
};
std::vector<Family> command_families();

// The command whose arguments shells complete: the script's name, or the installed program's.
std::string completed_name();

// `text` between single quotes, with `quote` for each single quote in it.
std::string quoted(std::string_view text, std::string_view quote);

}  // namespace bv

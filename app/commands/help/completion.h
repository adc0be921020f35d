// Completion scripts for shells, written from the tables of commands and their options.
#pragma once
#include <string>
#include <vector>

#include "app/commands/commands.h"

namespace bv {

std::string bash_completion();
std::string zsh_completion();
std::string fish_completion();

// The completions of an option's value, or of a word by position.
struct Offer {
  enum class Kind : uint8_t { nothing, words, folders, files };
  Kind kind = Kind::nothing;
  std::vector<std::string> words = {};
};
Offer offer_of(const OptionRow&);

// The first part of a row's help: shells show it beside the option.
std::string short_help(const OptionRow&);

// A model, or the first word of commands, with its description; `data` is one of them.
struct FirstWord {
  std::string word, help;
};
std::vector<FirstWord> first_words();

// The commands of two words: by their first.
struct Family {
  std::string first;
  std::vector<FirstWord> seconds;
};
std::vector<Family> command_families();

// The word that shells complete after: the name of the script, or of the installed program.
std::string completed_name();

// `text` between single quotes, with `quote` for each single quote in it.
std::string quoted(std::string_view text, std::string_view quote);

}  // namespace bv

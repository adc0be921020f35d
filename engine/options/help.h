// The help of commands and options, generated from their tables.
#pragma once
#include <span>
#include <string>
#include <string_view>

#include "engine/options/command.h"

namespace bv {

struct HelpView {
  size_t width = 80;
  bool all = false;  // --help-all: every option; else those that a first run needs
  const Options* holds =
      nullptr;  // values to show instead of the defaults, for a model and its data
};

// Width of help and tables: the terminal's if standard output is a terminal, else COLUMNS, else 80;
// at least 44, at most 100.
size_t text_width();

std::string help_text(const Command&, std::span<const Command> all, const HelpView& = {});
std::string help_markdown(std::span<const Command> all);  // docs/options.md
std::string usage_text();                                 // for an empty command line
// The models and the commands with their descriptions; with `first`, only the two-word commands
// that begin with it.
std::string list_text(std::span<const Command> all, size_t width);
std::string list_text(std::span<const Command> all, std::string_view first, size_t width);

std::string usage_of(const Command&);         // "preview MODEL --out DIR"
std::string flags_of(const OptionRow&);       // "-n, --nproc N"
std::string brief(std::string_view summary);  // up to its first "; " or ": ", for a list
// Lines of a name and its description; a long name gets a line of its own.
std::string listed(std::string_view name, std::string_view text, size_t width, size_t column = 23);

// The names of the training options that --help shows.
std::span<const std::string_view> basic_options();

// A command to type, and its description.
struct Example {
  std::string_view command, what;
};
std::span<const Example> examples();

// Titles of the groups of training options that a command takes entirely.
std::vector<std::string> whole_groups(const Command&);

}  // namespace bv

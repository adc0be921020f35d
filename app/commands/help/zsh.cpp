// The completion script for zsh: specifications for _arguments, by command.
#include "app/commands/help/completion.h"
#include "base/text.h"
#include "engine/options/help.h"

namespace bv {

namespace {

constexpr std::string_view begin =
    R"(
# Completes ./launcher in zsh, after compinit:  source <(./launcher completion zsh)
_barevision() {
  local curcontext=$curcontext state state_descr line
  local -a context names training specs
  local -A opt_args
  local command=train count=0
)";

// Passes to _arguments only the program and the words after the command's name.
constexpr std::string_view end = R"(  words=("$words[1]" "${(@)words[2 + count, -1]}")
  (( CURRENT -= count ))
  _arguments -s -S : "$specs[@]"
}
# In a folder of fpath, this file is the function.
if [[ $funcstack[1] == _barevision ]]; then
  _barevision "$@"
else
  compdef _barevision )";

std::string in_quotes(const std::string& text) { return quoted(text, R"('\'')"); }

std::string escaped(std::string_view text, std::string_view special) {
  std::string result;
  for (const char c : text) {
    if (special.find(c) != special.npos) result += '\\';
    result += c;
  }
  return result;
}

std::string action(const OptionRow& row) {
  const Offer offer = offer_of(row);
  switch (offer.kind) {
    case Offer::Kind::words:
      return "(" + join(offer.words, " ") + ")";
    case Offer::Kind::folders:
      return "_files -/";
    case Offer::Kind::files:
      return "_files";
    case Offer::Kind::nothing:
      break;
  }
  return " ";
}

// A line of the array `specs`. --name=: the value follows the = or is the next word.
std::string spec(const OptionRow& row) {
  const std::string value =
      ":" + escaped(row.metavar.empty() ? row.name : row.metavar, ":") + ":" + action(row);
  const bool optional = row.metavar.starts_with('[');
  if (row.positional)
    return "    " + in_quotes((row.is_list() ? "*" : optional ? ":" : "") + value) + "\n";
  const std::string help = "[" + escaped(short_help(row), "[]:\\") + "]";
  if (row.is_flag()) return "    " + in_quotes(row.flag() + help) + "\n";
  std::string lines = "    " + in_quotes(row.flag() + "=" + help + value) + "\n";
  if (row.letter != 0)
    lines += "    " + in_quotes(std::string("-") + row.letter + "+" + help + value) + "\n";
  return lines;
}

std::string common_specs(const Command& command) {
  std::string lines = "    '--help[print the help]' '--help-all[print the help of all options]'\n";
  if (command.trains()) lines += "    '--config=[options from a file]:FILE:_files'\n";
  return lines;
}

std::string array(const std::vector<FirstWord>& list) {
  std::string text = "names=(\n";
  for (const FirstWord& one : list) text += "      " + in_quotes(one.word + ":" + one.help) + "\n";
  return text + "    )";
}

bool is_of_training(const OptionRow& row) { return find_option(row.name) == &row; }

// Commands that train share the array `training` of their options.
std::string specs_of(const Command& command) {
  std::string lines = "  specs=(\n" + common_specs(command);
  for (const OptionRow* row : command.rows())
    if (!command.trains() || !is_of_training(*row)) lines += spec(*row);
  if (command.trains()) lines += "    \"$training[@]\"\n";
  return lines + "  )\n";
}

}  // namespace

std::string zsh_completion() {
  std::string text = "#compdef " + completed_name() + std::string(begin);
  text += "  if (( CURRENT == 2 )) && [[ $words[2] != -* ]]; then\n    " + array(first_words()) +
          "\n    _describe -t commands 'model or command' names\n    return\n  fi\n";
  for (const Family& family : command_families())
    text += "  if (( CURRENT == 3 )) && [[ $words[2] == " + family.first + " ]]; then\n    " +
            array(family.seconds) + "\n    _describe -t commands command names\n    return\n  fi\n";
  text += "  case \"$words[2] $words[3]\" in\n";
  for (const Command& command : commands()) {
    const size_t count = split(command.name, ' ').size();
    text += "    '" + std::string(command.name) + (count == 1 ? " '*" : "'") + ") command='" +
            std::string(command.name) + "' count=" + std::to_string(count) + " ;;\n";
  }
  text += "  esac\n  training=(\n";
  for (const OptionGroup& group : option_groups())
    for (const OptionRow& row : group.rows) text += spec(row);
  text += "  )\n  case $command in\n";
  for (const Command& command : commands())
    text += "  '" + std::string(command.name) + "')\n" + specs_of(command) + "  ;;\n";
  return text + "  esac\n" + std::string(end) + completed_name() + "\nfi\n";
}

}  // namespace bv

// The completion script for fish: a line per option, with the commands that accept it.
#include <algorithm>
#include <utility>

#include "app/commands/help/completion.h"
#include "base/text.h"
#include "engine/options/help.h"
#include "engine/options/model_config.h"

namespace bv {

namespace {

constexpr std::string_view begin =
    R"(# Completes ./launcher in fish:  ./launcher completion fish | source
function __barevision_command
    set -l words (commandline -opc)
    switch "$words[2]"
)";

constexpr std::string_view end = R"(        case '*'
            echo train
    end
end
function __barevision_in
    set -l command (__barevision_command)
    contains -- "$command" $argv
end
function __barevision_after
    set -l words (commandline -opc)
    test "$words[2..-1]" = "$argv"
end
function __barevision_without
    set -l words (commandline -opc)
    for word in $words[2..-1]
        contains -- $word $argv; and return 1
    end
    return 0
end
)";

std::string complete() { return "complete -c " + completed_name(); }

std::string in_quotes(std::string_view text) {
  return quoted(join(split(text, '\\'), "\\\\"), "\\'");
}

std::string offered(const Offer& offer) {
  switch (offer.kind) {
    case Offer::Kind::words:
      return " -a " + in_quotes(join(offer.words, " "));
    case Offer::Kind::folders:
      return " -a '(__fish_complete_directories)'";
    case Offer::Kind::files:
      return " -F";
    case Offer::Kind::nothing:
      break;
  }
  return "";
}

std::string line(const std::string& condition, const std::string& rest, std::string_view help) {
  return complete() + " -n " + in_quotes(condition) + rest +
         (help.empty() ? "" : " -d " + in_quotes(help)) + "\n";
}

std::string line_of(const OptionRow& row, const std::string& takers) {
  const Offer offer = offer_of(row);
  std::string condition = "__barevision_in" + takers;
  if (row.positional) {
    if (offer.kind == Offer::Kind::nothing) return "";
    if (row.metavar == "MODEL")
      condition += "; and __barevision_without " + join(known_models(), " ");
    return line(condition, offered(offer), "");
  }
  const std::string flag =
      (row.letter != 0 ? std::string(" -s ") + row.letter : "") + " -l " + row.flag().substr(2);
  const bool files = offer.kind == Offer::Kind::files;
  return line(condition,
              flag +
                  (row.is_flag() ? ""
                   : files       ? " -r"
                                 : " -x") +
                  offered(offer),
              short_help(row));
}

// The names of the commands for which `takes` is true: " train 'data split'".
template <class Takes>
std::string takers_of(const Takes& takes) {
  std::string text;
  for (const Command& command : commands())
    if (takes(command))
      text += command.name.find(' ') == command.name.npos
                  ? " " + std::string(command.name)
                  : " \"" + std::string(command.name) + "\"";
  return text;
}

}  // namespace

std::string fish_completion() {
  std::string text(begin);
  for (const Command& command : commands())
    if (command.name.find(' ') == command.name.npos)
      text += "        case " + std::string(command.name) + "\n            echo $words[2]\n";
  for (const Family& family : command_families())
    text += "        case " + family.first + "\n            echo \"$words[2..3]\"\n";
  text += std::string(end) + complete() + " -f\n";
  for (const FirstWord& first : first_words())
    text += line("__barevision_after", " -a " + first.word, first.help);
  for (const Family& family : command_families())
    for (const FirstWord& second : family.seconds)
      text += line("__barevision_after " + family.first, " -a " + second.word, second.help);

  std::vector<const OptionRow*> rows;
  for (const Command& command : commands())
    for (const OptionRow* row : command.rows())
      if (std::ranges::find(rows, row) == rows.end()) rows.push_back(row);
  for (const OptionRow* row : rows)
    text += line_of(*row, takers_of([&](const Command& command) {
      return std::ranges::count(command.rows(), row) > 0;
    }));
  text += line("__barevision_in" + takers_of([](const Command& c) { return c.trains(); }),
               " -l config -r -F", "options from a file in the format of config.json");
  return text + complete() + " -s h -l help -d 'print the help'\n" + complete() +
         " -l help-all -d 'print the help of all options'\n";
}

}  // namespace bv

// completion: a script for bash, written from the table of commands and their options.
#include <algorithm>
#include <cstdio>
#include <map>
#include <set>

#include "app/commands/commands.h"
#include "base/text.h"
#include "engine/options/model_config.h"
#include "engine/options/named_recipe.h"

namespace bv {

namespace {

constexpr std::string_view begin =
    R"(# Completes ./launcher in bash:  source <(./launcher completion)
_barevision() {
  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]}
  local command=train options= words= paths=
  # Bash takes --option=value for three words.
  [[ $word != = ]] || word=
  [[ $before != = ]] || before=${COMP_WORDS[COMP_CWORD - 2]}
)";

constexpr std::string_view end = R"(  if [[ $word == -* ]]; then words=$options paths=; fi
  if [[ $paths ]]; then
    compopt -o filenames
    mapfile -t COMPREPLY < <(compgen "$paths" -- "$word")
  else
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
  fi
}
complete -F _barevision launcher
)";

// Bash completions for a row's value: its choices, files or folders; else none.
std::string offer(const OptionRow& row) {
  const std::string_view metavar = row.metavar;
  if (metavar == "MODEL") return "words='" + join(known_models(), " ") + "'";
  if (metavar == "NAME" || metavar == "[NAME]") return "words='" + join(known_recipes(), " ") + "'";
  if (row.is_choice()) return "words='" + join(row.field.type->texts(), " ") + "'";
  for (const std::string_view folder : {"DIR", "SRC", "DST"})
    if (metavar.starts_with(folder)) return "paths=-d";
  for (const std::string_view file : {"FILE", "PATH", "RUN", "WEIGHTS"})
    if (metavar.starts_with(file)) return "paths=-f";
  return "words=";
}

// The words that come next where no option's value does.
std::string next_words(const Command& command) {
  for (const OptionRow* row : command.rows())
    if (row->positional) return offer(*row);
  return "words=";
}

std::string flags_of(const Command& command) {
  std::string flags = "--help";
  if (command.trains()) flags += " --config";
  for (const OptionRow* row : command.rows())
    if (!row->positional) flags += " " + row->flag();
  return flags;
}

// The branches of `case "$command $before"` for the options that take a value, one for each thing
// to offer. The first that matches holds: a command's own options come before those of training.
std::string value_branches() {
  std::string own;
  for (const Command& command : commands())
    for (const OptionRow& row : command.own)
      if (!row.is_flag() && !row.positional)
        own +=
            "    '" + std::string(command.name) + " " + row.flag() + "') " + offer(row) + " ;;\n";
  std::map<std::string, std::string> patterns = {{"paths=-f", "*' --config'"}};
  for (const OptionGroup& group : option_groups())
    for (const OptionRow& row : group.rows) {
      if (row.is_flag() || row.positional) continue;
      std::string& pattern = patterns[offer(row)];
      pattern += (pattern.empty() ? "*' " : " | *' ") + row.flag() + "'";
      if (row.letter != 0) pattern += std::string(" | *' -") + row.letter + "'";
    }
  for (const auto& [what, pattern] : patterns) own += "    " + pattern + ") " + what + " ;;\n";
  return own;
}

// "'data split'", or "'train '*": what $1 and $2 look like.
std::string pattern_of(const Command& command) {
  const bool one_word = command.name.find(' ') == command.name.npos;
  return "'" + std::string(command.name) + (one_word ? " '*" : "'");
}

// The words that a line may begin with, and what follows the first of a command of two.
std::string beginnings() {
  std::map<std::string, std::string> seconds;
  std::set<std::string> firsts;
  for (const std::string& model : known_models()) firsts.insert(model);
  for (const Command& command : commands()) {
    const std::vector<std::string> words = split(command.name, ' ');
    firsts.insert(words[0]);
    if (words.size() > 1) seconds[words[0]] += (seconds[words[0]].empty() ? "" : " ") + words[1];
  }
  std::string text = "  if ((COMP_CWORD == 1)); then words='" +
                     join(std::vector(firsts.begin(), firsts.end()), " ") + "' paths=; fi\n";
  for (const auto& [first, words] : seconds)
    text += "  if [[ $COMP_CWORD == 2 && $before == " + first + " ]]; then words='" + words +
            "' paths=; fi\n";
  return text;
}

std::string completion_script() {
  std::string patterns, contents;
  for (const Command& command : commands()) {
    const std::string name = "'" + std::string(command.name) + "'";
    patterns += "    " + pattern_of(command) + ") command=" + name + " ;;\n";
    contents +=
        "    " + name + ") options='" + flags_of(command) + "' " + next_words(command) + " ;;\n";
  }
  return std::string(begin) + "  case \"${COMP_WORDS[1]} ${COMP_WORDS[2]}\" in\n" + patterns +
         "  esac\n  case $command in\n" + contents + "  esac\n  case \"$command $before\" in\n" +
         value_branches() + "  esac\n" + beginnings() + std::string(end);
}

int print_completion(const CommandLine&, const std::vector<std::string>&) {
  std::fputs(completion_script().c_str(), stdout);
  return 0;
}

}  // namespace

constinit const Command completion_command = {
    .name = "completion",
    .usage = "",
    .summary =
        "print a completion script for bash: source <(./launcher "
        "completion)",
    .own = {},
    .takes = {},
    .run = print_completion};

}  // namespace bv

// completion SHELL: prints the script. This file has the code shared by all shells, and bash's.
#include "app/commands/help/completion.h"

#include <algorithm>
#include <cstdio>
#include <map>

#include "base/text.h"
#include "engine/options/help.h"
#include "engine/options/model_config.h"
#include "engine/options/named_recipe.h"

namespace bv {

namespace {

enum class Shell : uint8_t { bash, zsh, fish };
constexpr auto words(Shell) { return word_list("bash", "zsh", "fish"); }

struct CompletionOptions {
  Shell shell = Shell::bash;
};
constexpr OptionRow rows[] = {positional("shell", "[SHELL]", field<&CompletionOptions::shell>,
                                         "bash (the default), zsh or fish")};

constexpr std::string_view begin =
    R"(# Completes ./launcher in bash:  source <(./launcher completion bash)
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
)";

std::string in_bash(const Offer& offer) {
  switch (offer.kind) {
    case Offer::Kind::words:
      return "words='" + join(offer.words, " ") + "'";
    case Offer::Kind::folders:
      return "paths=-d";
    case Offer::Kind::files:
      return "paths=-f";
    case Offer::Kind::nothing:
      break;
  }
  return "words=";
}

// The words to offer next, unless an option's value is expected.
std::string next_words(const Command& command) {
  for (const OptionRow* row : command.rows())
    if (row->positional) return in_bash(offer_of(*row));
  return "words=";
}

std::string flags_of(const Command& command) {
  std::string flags = "--help --help-all";
  if (command.trains()) flags += " --config";
  for (const OptionRow* row : command.rows())
    if (!row->positional) flags += " " + row->flag();
  return flags;
}

// The branches of `case "$command $before"` for options with a value, one for each kind of offer.
// The first match counts: a command's own options come before those of training.
std::string value_branches() {
  std::string own;
  for (const Command& command : commands())
    for (const OptionRow& row : command.own)
      if (!row.is_flag() && !row.positional)
        own += "    '" + std::string(command.name) + " " + row.flag() + "') " +
               in_bash(offer_of(row)) + " ;;\n";
  std::map<std::string, std::string> patterns = {{"paths=-f", "*' --config'"}};
  for (const OptionGroup& group : option_groups())
    for (const OptionRow& row : group.rows) {
      if (row.is_flag() || row.positional) continue;
      std::string& pattern = patterns[in_bash(offer_of(row))];
      pattern += (pattern.empty() ? "*' " : " | *' ") + row.flag() + "'";
      if (row.letter != 0) pattern += std::string(" | *' -") + row.letter + "'";
    }
  for (const auto& [what, pattern] : patterns) own += "    " + pattern + ") " + what + " ;;\n";
  return own;
}

// The pattern for a command's words in $1 and $2: "'data split'" or "'train '*".
std::string pattern_of(const Command& command) {
  const bool one_word = command.name.find(' ') == command.name.npos;
  return "'" + std::string(command.name) + (one_word ? " '*" : "'");
}

std::string words_of(const std::vector<FirstWord>& list) {
  std::string text;
  for (const FirstWord& one : list) text += (text.empty() ? "" : " ") + one.word;
  return text;
}

// The words that can begin a line, and the second words of two-word commands.
std::string beginnings() {
  std::string text =
      "  if ((COMP_CWORD == 1)); then words='" + words_of(first_words()) + "' paths=; fi\n";
  for (const Family& family : command_families())
    text += "  if [[ $COMP_CWORD == 2 && $before == " + family.first + " ]]; then words='" +
            words_of(family.seconds) + "' paths=; fi\n";
  return text;
}

int print_completion(const CommandLine& line, const std::vector<std::string>&) {
  const Shell shell = own_options<CompletionOptions>(line).shell;
  const std::string script = shell == Shell::zsh    ? zsh_completion()
                             : shell == Shell::fish ? fish_completion()
                                                    : bash_completion();
  std::fputs(as_called(script).c_str(), stdout);
  return 0;
}

}  // namespace

std::string bash_completion() {
  std::string patterns, contents;
  for (const Command& command : commands()) {
    const std::string name = "'" + std::string(command.name) + "'";
    patterns += "    " + pattern_of(command) + ") command=" + name + " ;;\n";
    contents +=
        "    " + name + ") options='" + flags_of(command) + "' " + next_words(command) + " ;;\n";
  }
  return std::string(begin) + "  case \"${COMP_WORDS[1]} ${COMP_WORDS[2]}\" in\n" + patterns +
         "  esac\n  case $command in\n" + contents + "  esac\n  case \"$command $before\" in\n" +
         value_branches() + "  esac\n" + beginnings() + std::string(end) +
         "complete -F _barevision " + completed_name() + "\n";
}

Offer offer_of(const OptionRow& row) {
  std::string_view metavar = row.metavar;
  if (metavar.starts_with('[')) metavar.remove_prefix(1);
  if (row.is_choice()) return {Offer::Kind::words, row.field.type->texts()};
  if (metavar == "MODEL") return {Offer::Kind::words, known_models()};
  if (row.name == "recipe") return {Offer::Kind::words, known_recipes()};
  if (metavar.starts_with("COMMAND")) {
    Offer offer{Offer::Kind::words};
    for (const FirstWord& first : first_words()) offer.words.push_back(first.word);
    return offer;
  }
  Offer named{Offer::Kind::words};  // the words in "uniform|balanced|cost|A,B,.."
  for (const std::string& word : split(metavar, '|'))
    if (std::ranges::none_of(word, [](char c) { return (c >= 'A' && c <= 'Z') || c == '.'; }))
      named.words.push_back(word);
  if (!named.words.empty() && !row.is_flag()) return named;
  for (const std::string_view folder : {"DIR", "SRC", "DST", "OUT"})
    if (metavar.starts_with(folder)) return {Offer::Kind::folders};
  for (const std::string_view file : {"FILE", "PATH", "RUN", "WEIGHTS", "LIST"})
    if (metavar.starts_with(file)) return {Offer::Kind::files};
  return {};
}

std::string short_help(const OptionRow& row) {
  constexpr size_t most = 72;
  std::string text(row.help.substr(0, row.help.find("; ")));
  if (text.size() > most) text = text.substr(0, text.rfind(' ', most)) + " ...";
  return text;
}

std::vector<FirstWord> first_words() {
  std::vector<FirstWord> list;
  for (const std::string& model : known_models())
    list.push_back({model, load_model_config(model).description});
  for (const Command& command : commands())
    if (command.name.find(' ') == command.name.npos)
      list.push_back({std::string(command.name), brief(command.summary)});
  for (const Family& family : command_families()) {
    std::string help;
    for (const FirstWord& second : family.seconds) help += (help.empty() ? "" : ", ") + second.word;
    list.push_back({family.first, help});
  }
  std::ranges::sort(list, {}, &FirstWord::word);
  return list;
}

std::vector<Family> command_families() {
  std::vector<Family> list;
  for (const Command& command : commands()) {
    const std::vector<std::string> both = split(command.name, ' ');
    if (both.size() < 2) continue;
    if (list.empty() || list.back().first != both[0]) list.push_back({both[0], {}});
    list.back().seconds.push_back({both[1], brief(command.summary)});
  }
  return list;
}

std::string completed_name() {
  return own_command().ends_with("barevision") ? "barevision" : "launcher";
}

std::string quoted(std::string_view text, std::string_view quote) {
  return "'" + join(split(text, '\''), quote) + "'";
}

constinit const Command completion_command = {
    .name = "completion",
    .usage = "[bash|zsh|fish]",
    .summary = "print a completion script for a shell; for bash: source <(./launcher completion)",
    .own = rows,
    .takes = {},
    .run = print_completion};

}  // namespace bv

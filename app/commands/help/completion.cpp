// completion SHELL prints a script that calls ./launcher --complete WORDS, which knows what can
// come next.
#include <algorithm>
#include <cstdio>
#include <utility>
#include <vector>

#include "app/commands/commands.h"
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

// Each script calls the program by the name that was typed. Bash leaves quotes and ~ in it to eval,
// which mustn't run a command in it.
constexpr std::string_view bash_script =
    R"(# Completes ./launcher in bash:  source <(./launcher completion bash)
_barevision() {
  local program found word=${COMP_WORDS[COMP_CWORD]}
  [[ ${COMP_WORDS[0]} == *[\`\(]* ]] || eval "program=${COMP_WORDS[0]}"
  mapfile -t found < <("$program" --complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
  [[ $word != = ]] || word=  # of --option=
  case ${found[0]} in
    files) compopt -o filenames; mapfile -t COMPREPLY < <(compgen -f -- "$word") ;;
    folders) compopt -o filenames; mapfile -t COMPREPLY < <(compgen -d -- "$word") ;;
    *) found=("${found[@]:1}")
       mapfile -t COMPREPLY < <(compgen -W "${found[*]%%$'\t'*}" -- "$word") ;;
  esac
}
complete -F _barevision )";

// In a folder of zsh's fpath, this file is the function.
constexpr std::string_view zsh_script = R"(
# Completes ./launcher in zsh, after compinit:  source <(./launcher completion zsh)
_barevision() {
  local program=${(Q)words[1]/#\~\//$HOME/}
  local -a before=("${(@Q)words[2,CURRENT-1]}") found
  found=("${(@f)$("$program" --complete $before "${(Q)PREFIX}" 2>/dev/null)}")
  compset -P '--*='
  case $found[1] in
    files) _files ;;
    folders) _files -/ ;;
    *) found=("${(@)found[2,-1]//:/\\:}"); found=("${(@)found/$'\t'/:}"); _describe word found ;;
  esac
}
if [[ $funcstack[1] == _barevision ]]; then _barevision "$@"; else compdef _barevision )";

constexpr std::string_view fish_script =
    R"(# Completes ./launcher in fish:  ./launcher completion fish | source
function __barevision
    set -l words (commandline -opc)
    set -l word (commandline -ct)
    set -l program (string replace -r '^~/' "$HOME/" -- $words[1])
    set -l found ($program --complete $words[2..-1] "$word" 2>/dev/null)
    set -l option (string match -r '^--[^=]*=' -- "$word")
    set -l paths (complete -C "'' "(string replace -- "$option" '' "$word"))
    switch "$found[1]"
        case files
            printf '%s\n' "$option"$paths
        case folders
            printf '%s\n' "$option"(string match -r '.*/(?=\t|$)' -- $paths)
        case '*'
            printf '%s\n' "$option"$found[2..-1]
    end
end
complete -f -a '(__barevision)' -c )";

int print_script(const CommandLine& line, const std::vector<std::string>&) {
  const Shell shell = own_options<CompletionOptions>(line).shell;
  const std::string name = own_command().ends_with("barevision") ? "barevision" : "launcher";
  std::string text(shell == Shell::zsh    ? "#compdef " + name + std::string(zsh_script)
                   : shell == Shell::fish ? fish_script
                                          : bash_script);
  text += name + (shell == Shell::zsh ? "; fi\n" : "\n");
  std::fputs(as_called(text).c_str(), stdout);
  return 0;
}

// A candidate; its help is a model's description, or the first words of an option's.
struct Word {
  std::string text, help = {};
};
enum class Kind : uint8_t { words, files, folders };
constexpr auto words(Kind) { return word_list("words", "files", "folders"); }
struct Offer {
  Kind kind = Kind::words;
  std::vector<Word> words = {};
};

std::vector<Word> without_help(const std::vector<std::string>& texts) {
  std::vector<Word> list;
  for (const std::string& text : texts) list.push_back({text});
  return list;
}

// The second words of the commands that begin with `first`.
std::vector<Word> second_words(const std::string& first) {
  std::vector<Word> list;
  for (const Command& command : commands())
    if (command.name.starts_with(first + " "))
      list.push_back({std::string(command.name.substr(first.size() + 1)), brief(command.summary)});
  return list;
}

// The words that can begin a line: models, and the first words of commands.
std::vector<Word> first_words() {
  std::vector<Word> list;
  for (const std::string& model : known_models())
    list.push_back({model, load_model_config(model).description});
  for (const Command& command : commands()) {
    const std::string first = split(command.name, ' ')[0];
    if (first == command.name)
      list.push_back({first, brief(command.summary)});
    else if (list.back().text != first) {
      std::vector<std::string> seconds;
      for (Word& second : second_words(first)) seconds.push_back(std::move(second.text));
      list.push_back({first, join(seconds, ", ")});
    }
  }
  std::ranges::sort(list, {}, &Word::text);
  return list;
}

Offer values_of(const OptionRow& row) {
  std::string_view metavar = row.metavar;
  if (metavar.starts_with('[')) metavar.remove_prefix(1);
  if (row.is_choice()) return {.words = without_help(row.field.type->texts())};
  if (metavar == "MODEL") return {.words = without_help(known_models())};
  if (row.name == "recipe") return {.words = without_help(known_recipes())};
  if (metavar.starts_with("COMMAND")) return {.words = first_words()};
  Offer named;  // the words in "uniform|balanced|cost|A,B,.."
  for (const std::string& word : split(metavar, '|'))
    if (std::ranges::none_of(word, [](char c) { return (c >= 'A' && c <= 'Z') || c == '.'; }))
      named.words.push_back({word});
  if (!named.words.empty() && !row.is_flag()) return named;
  for (const std::string_view folder : {"DIR", "SRC", "DST", "OUT"})
    if (metavar.starts_with(folder)) return {Kind::folders};
  for (const std::string_view file : {"FILE", "PATH", "RUN", "WEIGHTS", "LIST"})
    if (metavar.starts_with(file)) return {Kind::files};
  return {};
}

std::string short_help(const OptionRow& row) {
  constexpr size_t most = 72;
  std::string text(row.help.substr(0, row.help.find("; ")));
  if (text.size() > most) text = text.substr(0, text.rfind(' ', most)) + " ...";
  return text;
}

// Only those that begin like this: fish would offer any that has its letters in their order.
std::vector<Word> options_of(const Command& command, const std::string& begun) {
  std::vector<const OptionRow*> all;
  for (const OptionRow& row : common_rows(command))
    if (row.name != "version") all.push_back(&row);
  for (const OptionRow* row : command.rows())
    if (!row->positional) all.push_back(row);
  std::vector<Word> list;
  for (const OptionRow* row : all) {
    list.push_back({row->flag(), short_help(*row)});
    if (row->letter != 0) list.push_back({std::string("-") + row->letter, short_help(*row)});
  }
  std::erase_if(list, [&](const Word& word) { return !word.text.starts_with(begun); });
  return list;
}

Offer offer_for(std::vector<std::string> line) {
  // Bash takes --option=value for three words.
  if (line.back() == "=") line.back() = "";
  std::erase(line, "=");
  std::string last = std::move(line.back());
  line.pop_back();
  const bool option = last.starts_with('-');
  if (line.empty() && !option) return {.words = first_words()};
  if (line.size() == 1)
    if (std::vector<Word> seconds = second_words(line[0]); !seconds.empty())
      return {.words = std::move(seconds)};

  const Command* command = &train_command;
  size_t count = 0;  // of the words in its name
  for (const Command& one : commands()) {
    const std::vector<std::string> name = split(one.name, ' ');
    if (name.size() > line.size() || !std::ranges::equal(name, std::span(line).first(name.size())))
      continue;
    command = &one;
    count = name.size();
  }
  if (option && last.find('=') != last.npos) {
    line.push_back(last.substr(0, last.find('=')));
  } else if (option) {
    return {.words = options_of(*command, last)};
  }
  const OptionRow* row = row_of_next(*command, std::span(line).subspan(count));
  return row && (!option || !row->positional) ? values_of(*row) : Offer{};
}

}  // namespace

int print_completions(std::span<const std::string> words) {
  if (words.empty()) return 2;
  const Offer offer = offer_for({words.begin(), words.end()});
  std::puts(std::string(word_of(offer.kind)).c_str());
  for (const auto& [text, help] : offer.words)
    std::printf("%s%s%s\n", text.c_str(), help.empty() ? "" : "\t", help.c_str());
  return 0;
}

constinit const Command completion_command = {
    .name = "completion",
    .usage = "[bash|zsh|fish]",
    .summary = "print a completion script for a shell; for bash: source <(./launcher completion)",
    .own = rows,
    .run = print_script};

}  // namespace bv

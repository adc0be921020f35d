// help [COMMAND]: lists models and commands, or shows one command's help; help --man: manual page.
#include "engine/options/help.h"

#include <cstdio>

#include "app/commands/commands.h"
#include "app/commands/help/manual.h"

namespace bv {

namespace {

struct HelpOptions {
  std::vector<std::string> words;
  bool man = false;
};
constexpr OptionRow rows[] = {
    positional("words", "[COMMAND]", field<&HelpOptions::words>,
               "a command, or a model; without it, all are listed"),
    {"man", "", field<&HelpOptions::man>, "print the manual page of everything, for man -l -"}};

int print_help(const CommandLine& line, const std::vector<std::string>&) {
  const auto own = own_options<HelpOptions>(line);
  std::string text;
  if (own.man) {
    text = manual_page(commands());
  } else if (own.words.empty()) {
    text = list_text(commands(), text_width());
  } else {
    std::vector<std::string> words = own.words;
    words.emplace_back("--help");
    text = parse_command_line(words).print->text;
  }
  std::fputs(text.c_str(), stdout);
  return 0;
}

}  // namespace

constinit const Command help_command = {
    .name = "help",
    .usage = "[COMMAND]",
    .summary = "list the models and commands, or show the help of one; --man: the manual page",
    .own = rows,
    .run = print_help};

}  // namespace bv

#include "app/commands/commands.h"

#include <algorithm>
#include <cstdio>
#include <exception>

#include "app/commands/processes.h"
#include "base/error.h"
#include "base/machine_error.h"
#include "base/stop_signals.h"
#include "base/text.h"
#include "engine/options/config.h"
#include "engine/options/foreign_models.h"
#include "engine/options/foreign_names.h"
#include "engine/options/help.h"
#include "engine/options/model_config.h"
#include "engine/options/named_recipe.h"

namespace bv {

namespace {

constexpr std::string_view asks_for_help[] = {"-h", "--help", "--help-all", "help"};

std::vector<std::string> names_of(std::span<const Command> all) {
  std::vector<std::string> names;
  for (const Command& command : all) names.emplace_back(command.name);
  return names;
}

// The second words of the two-word commands whose first word is `word`.
std::vector<std::string> after(const std::string& word, std::span<const Command> all) {
  std::vector<std::string> words;
  for (const Command& command : all)
    if (command.name.starts_with(word + " "))
      words.emplace_back(command.name.substr(word.size() + 1));
  return words;
}

[[noreturn]] void refuse_word(const std::string& word, const std::vector<std::string>& models,
                              const std::vector<std::string>& names) {
  const std::vector<std::string> recipes = known_recipes();
  if (std::ranges::find(recipes, word) != recipes.end())
    throw UserError(word + " is a recipe: ./launcher --recipe " + word);
  if (there_is(word + "/config.json"))
    throw UserError(word + " is a run's folder: ./launcher --resume " + word + " continues it");
  std::error_code error;
  if (there_is(word) && !std::filesystem::equivalent(word, models_folder(), error))
    throw UserError(word + " is a file or folder; the model comes first: ./launcher MODEL " +
                    (word.ends_with(".json") ? "--config " : "--data ") + word);
  std::vector<std::string> both = models;
  both.insert(both.end(), names.begin(), names.end());
  std::string elsewhere = advice_for_foreign_model(word);
  if (elsewhere.empty()) elsewhere = advice_for_foreign_command(word);
  throw UserError("unknown model or command '" + printable(word) + "'" +
                  (elsewhere.empty() ? suggestion(word, both) : elsewhere) +
                  "; ./launcher help lists all");
}

}  // namespace

std::span<const Command> commands() {
  static const Command all[] = {
      train_command,         recipes_command,    lint_command,        preview_command,
      eval_command,          predict_command,    report_command,      data_split_command,
      data_stats_command,    data_check_command, data_fetch_command,  data_list_command,
      data_pack_command,     data_index_command, data_unpack_command, weights_list_command,
      weights_fetch_command, completion_command, help_command};
  return all;
}

Named command_of(std::span<const std::string> arguments, std::span<const Command> all) {
  const Command* train = &*std::ranges::find(all, "train", &Command::name);
  if (arguments.empty() || arguments[0].starts_with('-')) return {train, 0};
  const std::string& first = arguments[0];
  if (!with_plain_dashes(first).empty()) return {train, 0};
  for (const Command& command : all)
    if (command.name == first) return {&command, 1};
  if (const std::vector<std::string> seconds = after(first, all); !seconds.empty()) {
    const std::string second = arguments.size() > 1 ? arguments[1] : "";
    for (const Command& command : all)
      if (command.name == first + " " + second) return {&command, 2};
    throw UserError(first + (second.empty() ? "" : " " + printable(second)) +
                    ": the commands are " + first + " " + join(seconds, ", " + first + " ") +
                    suggestion(second, seconds, first + " "));
  }
  const std::vector<std::string> models = known_models();
  if (std::ranges::find(models, first) == models.end()) refuse_word(first, models, names_of(all));
  return {train, 0};
}

CommandLine parse_command_line(std::span<const std::string> arguments) {
  if (arguments.empty()) return {.print = CommandLine::Print{usage_text(), 2}};
  if (!after(arguments[0], commands()).empty()) {  // the first word of a two-word command
    const bool help = arguments.size() > 1 && std::ranges::count(asks_for_help, arguments[1]) > 0;
    if (help || arguments.size() == 1)
      return {.print = CommandLine::Print{list_text(commands(), arguments[0], text_width()),
                                          help ? 0 : 2}};
  }
  const Named named = command_of(arguments, commands());
  return parse_arguments(*named.command, arguments.subspan(named.words), commands());
}

int run_in_place(const CommandLine& line, const std::vector<std::string>& argv) try {
  return line.command->run(line, argv);
} catch (const UserError& e) {
  throw with_place(line, e);
}

int run_command(const std::vector<std::string>& argv) try {
  if (argv.size() > 1 && argv[1] == "--complete")
    return print_completions(std::span(argv).subspan(2));
  const CommandLine line = parse_command_line(std::span(argv).subspan(1));
  if (!line.print) {
    if (!line.command->in_processes) end_on_stop_signals();
    return run_in_place(line, argv);
  }
  std::fputs(line.print->text.c_str(), line.print->exit_code ? stderr : stdout);
  return line.print->exit_code;
} catch (const std::exception& e) {
  std::fflush(stdout);
  print_error_line(error_line(e));
  return exit_code(e);
}

}  // namespace bv

#include "engine/options/command_line.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/text.h"
#include "engine/options/config.h"
#include "engine/options/foreign_names.h"
#include "engine/options/model_config.h"

namespace bv {

namespace {

std::string start_of(const Command& command) {
  return command.name == "train" ? "./launcher" : "./launcher " + std::string(command.name);
}
std::string see_help(const Command& command) {
  return "; " + start_of(command) + " --help lists all";
}

using Registered = std::pair<const OptionRow*, CLI::Option*>;

// CLI11 splits the line into options; the table interprets their values.
std::vector<Registered> register_options(CLI::App& app, const Command& command) {
  std::vector<Registered> registered;
  for (const OptionRow* row : command.rows()) {
    std::string names = row->positional ? std::string(row->name) : row->flag();
    if (row->letter != 0) names = std::string("-") + row->letter + "," + names;
    CLI::Option* option = row->is_flag() ? app.add_flag(names) : app.add_option(names);
    option->take_all();
    if (row->positional && row->is_list()) option->expected(-1);
    // An option takes one word. A missing one is reported by read_options.
    if (!row->is_flag() && !row->positional) option->expected(0, 1)->allow_extra_args(false);
    registered.emplace_back(row, option);
  }
  return registered;
}

std::vector<std::string> known_flags(const Command& command) {
  std::vector<std::string> flags = {"--help", "--version"};
  if (command.trains()) flags.emplace_back("--config");
  for (const OptionRow* row : command.rows())
    if (!row->positional) flags.push_back(row->flag());
  return flags;
}

bool is_of_training(const std::string& flag) {
  for (const OptionGroup& group : option_groups())
    for (const OptionRow& row : group.rows)
      if (row.flag() == flag) return true;
  return false;
}

[[noreturn]] void refuse_rest(const std::vector<std::string>& rest, const Command& command) {
  for (const std::string& word : rest) {
    if (!word.starts_with('-')) continue;
    const std::string flag = word.substr(0, word.find('='));
    if (is_of_training(flag))
      throw UserError(flag + " is not an option of " + std::string(command.name) +
                      see_help(command));
    const std::string elsewhere = advice_for_foreign(flag);
    throw UserError("unknown option " + printable(flag) +
                    (elsewhere.empty() ? suggestion(flag, known_flags(command)) : elsewhere) +
                    see_help(command));
  }
  std::error_code error;
  std::string advice = " after ./launcher " + usage_of(command);
  if (std::filesystem::is_directory(rest[0], error) && command.trains())
    advice = ": data are given by --data";
  if (parse_number(rest[0])) advice = ": lists are written with commas, as --betas 0.9,0.999";
  throw UserError("unexpected argument '" + printable(rest[0]) + "'" + advice + see_help(command));
}

void read_options(const std::vector<Registered>& registered, CommandLine& line) {
  for (const auto& [row, option] : registered) {
    const bool own = line.command->owns(*row);
    const CLI::results_t& results = option->results();
    if (results.empty() && row->positional && own && !row->metavar.starts_with('['))
      throw UserError(std::string(line.command->name) + " needs " + row->flag() +
                      see_help(*line.command));
    if (option->count() == 0) continue;
    const std::string flag = row->letter != 0 ? std::string("-") + row->letter : row->flag();
    const bool words = row->positional && row->is_list();
    if (results.size() > 1 && !words) throw UserError(flag + " is given twice");
    const std::string text = results.empty() ? "" : results[0];
    if (text.empty() && row->positional)
      throw UserError(flag + " is empty" + see_help(*line.command));
    if (text.empty() && !row->is_flag())
      throw UserError(flag + " needs a value: " + flag + " " + row->values());
    const Items items = words ? results : row->is_list() ? split(text, ',') : Items{text};
    check(*row, items, flag + " " + printable(text));
    (own ? line.own : line.values).emplace(row->name, items);
  }
}

// With a MODEL or a recipe, train's help shows what they make of the options.
std::string help_for(const CommandLine& line, std::span<const Command> all) {
  if (line.command->name != "train" ||
      (!line.values.contains("model") && !line.values.contains("recipe")))
    return help_text(*line.command, all);
  const Options given = preliminary_options(line);
  const Options holds =
      resolve_options(line, load_model_config(given.model), data_kind(given.data));
  return help_text(*line.command, all, &holds);
}

}  // namespace

std::vector<const OptionRow*> Command::rows() const {
  std::vector<const OptionRow*> rows;
  for (const OptionRow& row : own) rows.push_back(&row);
  const auto taken = [&](std::string_view word) { return std::ranges::count(takes, word) > 0; };
  for (const OptionGroup& group : option_groups())
    for (const OptionRow& row : group.rows)
      if ((taken(group.title) || taken(row.name)) &&
          std::ranges::find(own, row.name, &OptionRow::name) == own.end())
        rows.push_back(&row);
  return rows;
}

bool Command::owns(const OptionRow& row) const {
  return std::ranges::find(own, &row, [](const OptionRow& r) { return &r; }) != own.end();
}

bool Command::trains() const { return std::ranges::count(takes, "model") > 0; }

CommandLine parse_arguments(const Command& command, std::span<const std::string> arguments,
                            std::span<const Command> all) {
  CommandLine line{.command = &command};
  const auto print = [&](std::string text, int exit_code = 0) {
    line.print = CommandLine::Print{std::move(text), exit_code};
    return line;
  };
  CLI::App app;
  app.set_help_flag("");
  app.allow_extras();
  const auto* help = app.add_flag("-h,--help");
  const auto* version = app.add_flag("--version");
  const auto* markdown = app.add_flag("--help-markdown");
  const auto* config =
      command.trains() ? app.add_option("--config")->take_all()->expected(0, 1) : nullptr;
  const std::vector<Registered> registered = register_options(app, command);
  try {
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
  } catch (const CLI::ParseError& e) {
    throw UserError(printable(e.what()) + see_help(command));
  }
  if (version->count() > 0) return print("barevision " BAREVISION_VERSION "\n");
  if (markdown->count() > 0) return print(help_markdown(all));
  if (help->count() > 0 && !command.trains()) return print(help_text(command, all));
  const std::vector<std::string> rest = app.remaining();
  if (!rest.empty() && help->count() == 0) refuse_rest(rest, command);

  read_options(registered, line);
  if (config && config->count() > 0) {
    const CLI::results_t& files = config->results();
    if (files.size() != 1 || files[0].empty()) throw UserError("--config needs a value: one FILE");
    line.config = files[0];
  }
  if (help->count() > 0) return print(help_for(line, all));
  return line;
}

}  // namespace bv

#include "engine/options/command_line.h"

#include <CLI/CLI.hpp>
#include <filesystem>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/options/config.h"
#include "engine/options/foreign_names.h"
#include "engine/options/model_config.h"

namespace bv {

namespace {

const std::string see_help = "; ./launcher --help lists all";

using Registered = std::pair<const OptionRow*, CLI::Option*>;

// CLI11 splits the line into options; the table interprets their values.
std::vector<Registered> register_options(CLI::App& app) {
  std::vector<Registered> registered;
  for (const OptionGroup& group : option_groups()) {
    for (const OptionRow& row : group.rows) {
      std::string names = row.name == "model" ? "MODEL" : row.flag();
      if (row.letter != 0) names = std::string("-") + row.letter + "," + names;
      CLI::Option* option = row.is_flag() ? app.add_flag(names) : app.add_option(names);
      option->take_all();
      // An option takes one word. A missing one is reported by read_options.
      if (!row.is_flag() && row.name != "model") option->expected(0, 1)->allow_extra_args(false);
      registered.emplace_back(&row, option);
    }
  }
  return registered;
}

std::vector<std::string> known_flags() {
  std::vector<std::string> flags = {"--config", "--help", "--version"};
  for (const std::string& name : option_names())
    if (name != "model") flags.push_back(find_option(name)->flag());
  return flags;
}

[[noreturn]] void refuse_rest(const std::vector<std::string>& rest) {
  for (const std::string& word : rest) {
    if (!word.starts_with('-')) continue;
    const std::string flag = word.substr(0, word.find('='));
    const std::string elsewhere = advice_for_foreign(flag);
    throw UserError("unknown option " + printable(flag) +
                    (elsewhere.empty() ? suggestion(flag, known_flags()) : elsewhere) + see_help);
  }
  std::error_code error;
  std::string advice = "one MODEL, then options";
  if (std::filesystem::is_directory(rest[0], error)) advice = "data are given by --data";
  if (parse_number(rest[0])) advice = "lists are written with commas, as --betas 0.9,0.999";
  throw UserError("unexpected argument '" + printable(rest[0]) + "': " + advice + see_help);
}

void read_options(const std::vector<Registered>& registered, Values& values) {
  Options scratch;
  for (const auto& [row, option] : registered) {
    if (option->count() == 0) continue;
    const CLI::results_t& results = option->results();
    const std::string flag = row->letter != 0 ? std::string("-") + row->letter : row->flag();
    if (results.size() > 1) throw UserError(flag + " is given twice");
    const std::string text = results.empty() ? "" : results[0];
    if (text.empty() && row->name == "model") throw UserError("MODEL is empty" + see_help);
    if (text.empty() && !row->is_flag())
      throw UserError(flag + " needs a value: " + flag + " " + std::string(row->metavar));
    const Items items = row->is_list() ? split(text, ',') : Items{text};
    assign(scratch, *row, items, flag + " " + printable(text));
    values.emplace(row->name, items);
  }
}

// With a MODEL, --help shows what its recipe makes of the options.
std::string help_for(const CommandLine& line) {
  if (!line.values.contains("model")) return help_text();
  const Options given = preliminary_options(line);
  const Options holds =
      resolve_options(line, load_model_config(given.model), data_kind(given.data));
  return help_text(&holds);
}

CommandLine print(std::string text, int exit_code = 0) {
  return {.print = CommandLine::Print{std::move(text), exit_code}};
}

}  // namespace

CommandLine parse_command_line(std::span<const std::string> arguments) {
  if (arguments.empty()) return print(usage_text(), 2);
  CLI::App app;
  app.set_help_flag("");
  app.allow_extras();
  const auto* help = app.add_flag("-h,--help");
  const auto* version = app.add_flag("--version");
  const auto* markdown = app.add_flag("--help-markdown");
  const auto* config = app.add_option("--config")->take_all()->expected(0, 1);
  const std::vector<Registered> registered = register_options(app);
  try {
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
  } catch (const CLI::ParseError& e) {
    throw UserError(printable(e.what()) + see_help);
  }
  if (version->count() > 0) return print("barevision " BAREVISION_VERSION "\n");
  if (markdown->count() > 0) return print(help_markdown());
  const std::vector<std::string> rest = app.remaining();
  if (!rest.empty() && help->count() == 0) refuse_rest(rest);

  CommandLine line;
  read_options(registered, line.values);
  if (config->count() > 0) {
    const CLI::results_t& files = config->results();
    if (files.size() != 1 || files[0].empty()) throw UserError("--config needs a value: one FILE");
    line.config = files[0];
  }
  if (help->count() > 0) return print(help_for(line));
  return line;
}

}  // namespace bv

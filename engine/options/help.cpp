// --help, the short usage and docs/options.md, all written from the table of options.
#include <algorithm>

#include "base/text.h"
#include "engine/options/command_line.h"
#include "engine/options/model_config.h"

namespace bv {

namespace {

constexpr size_t width = 100, help_column = 30;

constexpr std::string_view usage =
    "usage: ./launcher [-n N] MODEL [options]       train a model\n"
    "       ./launcher [-n N] --resume DIR          resume a run\n"
    "       ./launcher COMMAND ...                  something else\n";

constexpr std::string_view examples = R"(
Examples:
  ./launcher vit_tiny                               the built-in images
  ./launcher vit_tiny --data photos --epochs 20     your own images: a folder per class
  ./launcher -n 2 vit_tiny --data cifar-10-batches-bin --batch 128 --lr 5e-4
  ./launcher vit_tiny --data photos --weights runs/first/best/weights.safetensors --lr 1e-4
  ./launcher --resume runs/first --epochs 40        resume, with more epochs
  ./launcher vit_large --batch 8 --plan             how much memory would this take?
)";

constexpr std::string_view markdown_head =
    R"(<!-- Written by ./launcher --help-markdown; `make docs` renews it. -->
# Options

`./launcher --help` lists the options of training, `./launcher COMMAND --help` those of a command.
`./launcher MODEL --data PATH --help` shows the values that hold for that model and that data.

A value comes from the first of these that states it: the command line, the file of `--config`,
the recipe of `--recipe`, the model's own recipe for this kind of data (`models/MODEL.json`), the
default below. Sections up to [Other](#other) are options of training; each command's own follow.
)";

constexpr std::pair<const char*, const char*> other_options[] = {
    {"--config FILE", "options from a file in the format of a run's config.json"},
    {"--version", "print the version"},
    {"-h, --help", "print this help"}};

std::string flags_of(const OptionRow& row) {
  const std::string letter = row.letter != 0 ? std::string("-") + row.letter + ", " : "";
  return letter + row.flag() + (row.is_flag() || row.positional ? "" : " " + row.values());
}

std::string help_line(const std::string& flags, const std::string& help) {
  std::string line = "  " + flags;
  if (line.size() + 2 > help_column)
    line += '\n' + std::string(help_column, ' ');
  else
    line.resize(help_column, ' ');
  return line + wrap(help, help_column, help_column, width) + '\n';
}

// `holds`: the options of this model and data; null: none are chosen yet.
std::string help_of(const OptionRow& row, const Options* holds) {
  std::string value = default_of(row);
  if (holds && row.is_flag())
    value = items_of(*holds, row)[0] == "true" ? "given" : "";
  else if (holds)
    value = printable(join(items_of(*holds, row), ","));
  return std::string(row.help) + (value.empty() ? "" : " [" + value + "]");
}

std::string escaped(std::string_view text) { return join(split(text, '|'), "\\|"); }

std::string markdown_row(const std::string& flags, const std::string& value,
                         std::string_view help) {
  return "| `" + escaped(flags) + "` | " + (value.empty() ? "" : "`" + value + "`") + " | " +
         escaped(help) + " |\n";
}

std::string other_lines(const Command& command) {
  std::string text = "\nOther:\n";
  for (const auto& [flags, help] : other_options)
    if (command.trains() || std::string_view(flags).find("--config") != 0)
      text += help_line(flags, help);
  return text;
}

std::string training_help(const Command& command, std::span<const Command> all,
                          const Options* holds) {
  std::string text = std::string(usage) + "\nModels:\n";
  for (const std::string& name : known_models())
    text += help_line(name, load_model_config(name).description);
  text += "\nCommands (./launcher COMMAND --help says more):\n";
  for (const Command& one : all) text += help_line(std::string(one.name), std::string(one.summary));
  text += examples;
  for (const OptionGroup& group : option_groups()) {
    if (group.title.empty()) continue;
    text += "\n" + std::string(group.title) + ":\n";
    for (const OptionRow& row : group.rows) text += help_line(flags_of(row), help_of(row, holds));
  }
  text += other_lines(command);
  text += holds
              ? "\nIn [ ]: what holds for " + holds->model + " and these data and options.\n"
              : "\nIn [ ]: the default, unless the model's recipe (models/MODEL.json) has another "
                "for this kind of\ndata; ./launcher MODEL --data PATH --help shows what holds. "
                "The command line wins over\n--config, which wins over the recipe.\n";
  return text;
}

// Names of the groups of training options that a command takes whole.
std::string whole_groups(const Command& command) {
  std::vector<std::string> titles;
  for (const OptionGroup& group : option_groups())
    if (!group.title.empty() && std::ranges::count(command.takes, group.title) > 0)
      titles.emplace_back(group.title);
  return join(titles, ", ");
}

}  // namespace

std::string usage_of(const Command& command) {
  const std::string name(command.name);
  return command.usage.empty() ? name : name + " " + std::string(command.usage);
}

std::string usage_text() {
  return std::string(usage) + "try:   ./launcher vit_tiny\nhelp:  ./launcher --help\n";
}

std::string help_text(const Command& command, std::span<const Command> all, const Options* holds) {
  if (command.name == "train") return training_help(command, all, holds);
  std::string text =
      "usage: ./launcher " + usage_of(command) + "\n\n" + wrap(command.summary, 0, 0, width) + "\n";
  std::string own, of_training;
  for (const OptionRow* row : command.rows()) {
    const bool whole = std::ranges::any_of(option_groups(), [&](const OptionGroup& group) {
      return std::ranges::count(command.takes, group.title) > 0 && !group.rows.empty() &&
             row >= &group.rows.front() && row <= &group.rows.back();
    });
    if (row->help.empty() || whole) continue;
    (command.owns(*row) ? own : of_training) += help_line(flags_of(*row), help_of(*row, nullptr));
  }
  if (!own.empty()) text += "\nOptions:\n" + own;
  if (!of_training.empty()) text += "\nAs in training:\n" + of_training;
  if (const std::string titles = whole_groups(command); !titles.empty())
    text += "\nAlso the options of a training run, as ./launcher --help lists them:\n  " + titles +
            "\n";
  return text + other_lines(command);
}

std::string help_markdown(std::span<const Command> all) {
  const std::string columns = "| Option | Default | |\n| --- | --- | --- |\n";
  std::string text(markdown_head);
  text += "\n## Commands\n\n| Command | |\n| --- | --- |\n";
  for (const Command& command : all)
    text += "| `" + escaped("./launcher " + usage_of(command)) + "` | " + escaped(command.summary) +
            " |\n";
  for (const OptionGroup& group : option_groups()) {
    if (group.title.empty()) continue;
    text += "\n## " + std::string(group.title) + "\n\n" + columns;
    for (const OptionRow& row : group.rows)
      text += markdown_row(flags_of(row), default_of(row), row.help);
  }
  text += "\n## Other\n\n" + columns;
  for (const auto& [flags, help] : other_options) text += markdown_row(flags, "", help);
  for (const Command& command : all) {
    if (command.own.empty()) continue;
    text += "\n## `" + std::string(command.name) + "`\n\n" + columns;
    for (const OptionRow& row : command.own)
      text += markdown_row(flags_of(row), default_of(row), row.help);
    if (const std::string titles = whole_groups(command); !titles.empty())
      text += "\nAlso the options of a training run: " + titles + ".\n";
  }
  return text;
}

}  // namespace bv

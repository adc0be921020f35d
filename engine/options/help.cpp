#include "engine/options/help.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "base/text.h"
#include "engine/options/model_config.h"

namespace bv {

namespace {

constexpr std::pair<std::string_view, std::string_view> usage[] = {
    {"./launcher [-n N] MODEL [options]   ", "train a model"},
    {"./launcher [-n N] --resume DIR      ", "resume a run"},
    {"./launcher COMMAND ...              ", "another command"}};

constexpr Example example_lines[] = {
    {"./launcher vit_tiny", "the built-in images"},
    {"./launcher vit_tiny --data photos --epochs 20", "your own images: a folder per class"},
    {"./launcher -n 2 vit_tiny --data cifar-10-batches-bin --batch 128 --lr 5e-4",
     "CIFAR-10 on two processes"},
    {"./launcher vit_tiny --data photos --weights runs/first/best/weights.safetensors --lr 1e-4",
     "fine-tune the weights of another run"},
    {"./launcher --resume runs/first --epochs 80", "resume, with more epochs"},
    {"./launcher vit_large --batch 8 --plan", "how much memory would this take?"}};

// The options a first run needs; commands with few options show all of them.
constexpr std::string_view basic[] = {
    "data",      "val",       "val_fraction", "classes",       "image_size",
    "augment",   "recipe",    "weights",      "patch_size",    "on_bad_image",
    "epochs",    "steps",     "batch",        "accumulate",    "strict",
    "seed",      "optimizer", "lr",           "weight_decay",  "schedule",
    "clip_grad", "ema",       "layer_decay",  "warmup_epochs", "label_smoothing",
    "out",       "resume",    "save_every",   "quiet",         "nproc",
    "device",    "precision", "recompute",    "micro_batches", "workers",
    "plan"};
constexpr size_t few = 20;

constexpr std::string_view markdown_head =
    R"(<!-- Written by ./launcher --help-markdown; `make docs` renews it. -->
# Options

`./launcher --help` lists the options that most runs need, `./launcher --help-all` all of them,
`./launcher COMMAND --help` those of a command. `./launcher MODEL --data PATH --help` shows the
values that apply to that model and that data. `./launcher help --man` prints all this as a man
page.

A value comes from the first of these that sets it: the command line, the file of `--config`,
the recipe of `--recipe`, the model's own recipe for this kind of data (`models/MODEL.json`), the
default below. If an option is given twice, the last value counts. Sections up to [Other](#other)
are options of training; each command's own follow.
)";

// Wraps the text, with the program's name as it was invoked.
std::string fitted(std::string_view text, size_t first_column, size_t indent, size_t width) {
  return wrap(as_called(std::string(text)), first_column, indent, width);
}

bool is_basic(const OptionRow& row) { return std::ranges::count(basic, row.name) > 0; }

bool is_of_group(const OptionRow& row, const OptionGroup& group) {
  return !group.rows.empty() && &row >= &group.rows.front() && &row <= &group.rows.back();
}

std::string option_line(const OptionRow& row, const HelpView& view) {
  // holds: null if no model is chosen yet.
  std::string value = default_of(row);
  if (view.holds && row.is_flag())
    value = items_of(*view.holds, row)[0] == "true" ? "given" : "";
  else if (view.holds)
    value = printable(join(items_of(*view.holds, row), ","));
  const std::string help = std::string(row.help) + (value.empty() ? "" : " [" + value + "]");
  return listed(flags_of(row), help, view.width, 30);
}

std::string groups_of(const Command& command, const HelpView& view) {
  std::string text;
  const std::vector<std::string> titles = whole_groups(command);
  for (const OptionGroup& group : option_groups()) {
    if (std::ranges::count(titles, group.title) == 0) continue;
    text += "\n" + std::string(group.title) + ":\n";
    for (const OptionRow& row : group.rows)
      if (view.all || is_basic(row)) text += option_line(row, view);
  }
  return text;
}

std::string common_lines(const Command& command, const HelpView& view) {
  std::string text = "\nOther:\n";
  for (const OptionRow& row : common_rows(command)) text += option_line(row, {view.width});
  return text;
}

std::string paragraph(std::string_view text, const HelpView& view) {
  return "\n" + fitted(text, 0, 0, view.width) + "\n";
}

// hides: some of the command's options are not shown.
std::string last_line(const Command& command, bool hides, const HelpView& view) {
  if (!hides) return paragraph("As a page: docs/options.md", view);
  const size_t words = static_cast<size_t>(
      std::ranges::count_if(command.rows(), [](const OptionRow* row) { return row->positional; }));
  const size_t count = command.rows().size() - words + common_rows(command).size();
  const std::string name = command.name == "train" ? "" : " " + std::string(command.name);
  return paragraph("All " + std::to_string(count) + " options: ./launcher" + name +
                       " --help-all, or docs/options.md",
                   view);
}

std::string usage_lines(size_t width) {
  std::string text;
  for (const auto& [line, what] : usage)
    text += (text.empty() ? "usage: " : "       ") +
            fitted(std::string(line) + std::string(what), 7, 9, width) + "\n";
  return text;
}

std::string commands_of(std::span<const Command> all, std::string_view beginning, size_t width) {
  std::string text = "\nCommands:\n";
  for (const Command& one : all)
    if (one.name.starts_with(beginning)) text += listed(one.name, brief(one.summary), width);
  return text;
}

std::string models_and_commands(std::span<const Command> all, size_t width) {
  std::string text = usage_lines(width) + "\nModels:\n";
  for (const std::string& name : known_models())
    text += listed(name, load_model_config(name).description, width);
  return text + commands_of(all, "", width);
}

std::string training_help(const Command& command, std::span<const Command> all,
                          const HelpView& view) {
  std::string text = models_and_commands(all, view.width) + "\nExamples:\n";
  for (const Example& example : example_lines) {
    const std::string line = fitted(example.command, 2, 6, view.width - 2);
    text += "  # " + fitted(example.what, 4, 4, view.width) + "\n  " +
            join(split(line, '\n'), " \\\n") + "\n";
  }
  text += groups_of(command, view) + common_lines(command, view);
  if (view.holds)
    text += paragraph(
        "In [ ]: the values for " + view.holds->model + ", these data and these options.", view);
  else
    text += paragraph(
        "In [ ]: the default, unless the model's recipe (models/MODEL.json) has another for this "
        "kind of data; ./launcher MODEL --data PATH --help shows what applies. The command line "
        "wins over --config, which wins over the recipe.",
        view);
  return text + last_line(command, !view.all, view);
}

std::string escaped(std::string_view text) { return join(split(text, '|'), "\\|"); }

std::string markdown_row(std::string_view flags, const std::string& value, std::string_view help) {
  return "| `" + escaped(flags) + "` | " + (value.empty() ? "" : "`" + value + "`") + " | " +
         escaped(help) + " |\n";
}

}  // namespace

size_t text_width() {
  constexpr int64_t narrowest = 44, usual = 80, widest = 100;
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0) size.ws_col = 0;
  int64_t columns = size.ws_col;
  if (const char* given = std::getenv("COLUMNS"); given && columns == 0)
    columns = parse_integer(given).value_or(0);
  return static_cast<size_t>(std::clamp(columns > 0 ? columns : usual, narrowest, widest));
}

std::span<const std::string_view> basic_options() { return basic; }
std::span<const Example> examples() { return example_lines; }

std::string usage_of(const Command& command) {
  const std::string name(command.name);
  return command.usage.empty() ? name : name + " " + std::string(command.usage);
}

std::string flags_of(const OptionRow& row) {
  const std::string letter = row.letter != 0 ? std::string("-") + row.letter + ", " : "";
  return letter + row.flag() + (row.is_flag() || row.positional ? "" : " " + row.values());
}

std::string brief(std::string_view summary) {
  return std::string(summary.substr(0, std::min(summary.find("; "), summary.find(": "))));
}

std::string listed(std::string_view name, std::string_view text, size_t width, size_t column) {
  constexpr size_t indent = 2, narrow = 8, roomy = 70;
  if (width < roomy) column = narrow;
  std::string line(indent, ' ');
  for (size_t at = 0, used = indent; at < name.size();) {  // breaks a list of choices at a |
    const size_t end = std::min(name.find('|', at), name.size() - 1) + 1;
    if (used + end - at > width && used > indent) {
      line += '\n' + std::string(narrow, ' ');
      used = narrow;
    }
    line += name.substr(at, end - at);
    used += end - at;
    at = end;
  }
  if (line.size() + 2 > column)
    line += '\n' + std::string(column, ' ');
  else
    line.resize(column, ' ');
  return line + fitted(text, column, column, width) + '\n';
}

std::vector<std::string> whole_groups(const Command& command) {
  std::vector<std::string> titles;
  for (const OptionGroup& group : option_groups())
    if (!group.title.empty() && std::ranges::count(command.takes, group.title) > 0)
      titles.emplace_back(group.title);
  return titles;
}

std::string usage_text() {
  return usage_lines(text_width()) + as_called(
                                         "try:   ./launcher vit_tiny\n"
                                         "help:  ./launcher --help, ./launcher help\n");
}

std::string list_text(std::span<const Command> all, size_t width) {
  return models_and_commands(all, width) + "\n" +
         fitted("More: ./launcher help COMMAND; ./launcher --help for the options of training", 0,
                6, width) +
         "\n";
}

std::string list_text(std::span<const Command> all, std::string_view first, size_t width) {
  const std::string word(first);
  return fitted("usage: ./launcher " + word + " COMMAND ...", 0, 9, width) + "\n" +
         commands_of(all, word + " ", width) + "\n" +
         fitted("More: ./launcher help " + word + " COMMAND", 0, 6, width) + "\n";
}

std::string help_text(const Command& command, std::span<const Command> all, const HelpView& view) {
  if (command.name == "train") return training_help(command, all, view);
  const std::vector<const OptionRow*> rows = command.rows();
  const std::vector<std::string> titles = whole_groups(command);
  std::string text = fitted("usage: ./launcher " + usage_of(command), 0, 9, view.width) + "\n" +
                     paragraph(command.summary, view);
  std::string own, of_training;
  bool hides = !titles.empty() && !view.all;
  for (const OptionRow* row : rows) {
    const bool whole = std::ranges::any_of(option_groups(), [&](const OptionGroup& group) {
      return std::ranges::count(titles, group.title) > 0 && is_of_group(*row, group);
    });
    if (row->help.empty() || whole) continue;
    const bool shown = command.owns(*row) || view.all || is_basic(*row) || rows.size() <= few;
    hides = hides || !shown;
    if (shown) (command.owns(*row) ? own : of_training) += option_line(*row, {view.width});
  }
  if (!own.empty()) text += "\nOptions:\n" + own;
  if (!of_training.empty()) text += "\nAs in training:\n" + of_training;
  if (view.all)
    text += groups_of(command, {view.width, true});
  else if (!titles.empty())
    text += paragraph("Also the options of a training run: " + join(titles, ", "), view);
  return text + common_lines(command, view) + last_line(command, hides, view);
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
  for (const OptionRow& row : common_rows(all.front()))
    text += markdown_row(flags_of(row), "", row.help);
  for (const Command& command : all) {
    if (command.own.empty()) continue;
    text += "\n## `" + std::string(command.name) + "`\n\n" + columns;
    for (const OptionRow& row : command.own)
      text += markdown_row(flags_of(row), default_of(row), row.help);
    if (const std::vector<std::string> titles = whole_groups(command); !titles.empty())
      text += "\nAlso the options of a training run: " + join(titles, ", ") + ".\n";
  }
  return text;
}

}  // namespace bv

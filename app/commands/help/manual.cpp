#include "app/commands/help/manual.h"

#include "base/text.h"
#include "engine/options/help.h"
#include "engine/options/model_config.h"

namespace bv {

namespace {

constexpr std::string_view description =
    "barevision trains image classifiers with its own kernels, in CUDA and for CPUs. The first "
    "word is a model, which is then trained, or a command. A value comes from the first of these "
    "that sets it: the command line, the file of --config, the recipe of --recipe, the model's "
    "own recipe for this kind of data, the default. If an option is given twice, the last value "
    "counts.";

constexpr std::pair<std::string_view, std::string_view> exit_codes[] = {
    {"0", "done"},
    {"1", "the run could not continue or is incomplete; data check found something"},
    {"2", "a mistake in the command, the configuration or the data"},
    {"127", "a worker process could not be started"},
    {"128 + N", "ended by signal N; training that had begun has saved a checkpoint if it could"}};

constexpr std::pair<std::string_view, std::string_view> variables[] = {
    {"BAREVISION_MODELS", "the folder of models and recipes"},
    {"BAREVISION_ISA", "avx2 or avx512: the instructions of the CPU kernels"},
    {"OMP_NUM_THREADS", "threads of a process"},
    {"COLUMNS", "columns of help if standard output is not a terminal"}};

// Escapes a backslash, and a minus that users may copy, for roff.
std::string escaped(std::string_view text) {
  return join(split(join(split(text, '\\'), "\\e"), '-'), "\\-");
}

// A line of text; a leading . or ' is escaped, or roff would read it as a request.
std::string line(std::string_view text) {
  return (text.starts_with('.') || text.starts_with('\'') ? "\\&" : "") + escaped(text) + "\n";
}

std::string entry(std::string_view name, std::string_view text) {
  return ".TP\n.B " + escaped(join(split(name, '"'), "\\(dq")) + "\n" + line(text);
}

std::string option(const OptionRow& row) {
  const std::string value = default_of(row);
  return entry(flags_of(row),
               std::string(row.help) + (value.empty() ? "" : " [default: " + value + "]"));
}

std::string command_options(const Command& command) {
  std::string text;
  if (!command.usage.empty()) text += ".B ./launcher " + escaped(usage_of(command)) + "\n.PP\n";
  text += line(command.summary);
  for (const OptionRow& row : command.own) text += option(row);
  std::vector<std::string> flags;
  for (const OptionRow* row : command.rows())
    if (!command.owns(*row) && !row->positional) flags.push_back(row->flag());
  if (command.name != "train" && !flags.empty())
    text += ".PP\n" + line("As in training: " + (whole_groups(command).empty()
                                                     ? join(flags, ", ")
                                                     : join(whole_groups(command), ", ")));
  return text;
}

}  // namespace

std::string manual_page(std::span<const Command> all) {
  std::string text =
      ".\\\" Written by ./launcher help --man\n"
      ".TH BAREVISION 1 \"\" \"barevision " BAREVISION_VERSION
      "\"\n"
      ".nh\n.ad l\n"
      ".SH NAME\nbarevision \\- train image classifiers\n"
      ".SH SYNOPSIS\n"
      ".B ./launcher\n[\\-n N] MODEL [options]\n.br\n"
      ".B ./launcher\n[\\-n N] \\-\\-resume DIR\n.br\n"
      ".B ./launcher\nCOMMAND ...\n"
      ".SH DESCRIPTION\n" +
      line(description) + ".SH MODELS\n";
  for (const std::string& name : known_models())
    text += entry(name, load_model_config(name).description);
  text += ".SH COMMANDS\n";
  for (const Command& command : all)
    text += ".SS " + escaped(command.name) + "\n" + command_options(command);
  text += ".SH OPTIONS OF TRAINING\n";
  for (const OptionGroup& group : option_groups()) {
    if (group.title.empty()) continue;
    text += ".SS " + escaped(group.title) + "\n";
    for (const OptionRow& row : group.rows) text += option(row);
  }
  text += ".SS Other\n";
  for (const OptionRow& row : common_rows(all.front())) text += option(row);
  text += ".SH EXIT STATUS\n";
  for (const auto& [code, meaning] : exit_codes) text += entry(code, meaning);
  text += ".SH ENVIRONMENT\n";
  for (const auto& [name, meaning] : variables) text += entry(name, meaning);
  text += ".SH EXAMPLES\n";
  std::string between;  // empty after a heading, which begins a paragraph itself
  for (const Example& example : examples()) {
    text += between + line(std::string(example.what) + ":") + ".PP\n.nf\n.RS\n" +
            line(example.command) + ".RE\n.fi\n";
    between = ".PP\n";
  }
  text += ".SH SEE ALSO\nThe pages in docs/, of which docs/options.md has these options.\n";
  return as_called(text);
}

}  // namespace bv

// The table of the launcher's commands; they are defined in this folder and its subfolders.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "engine/options/command_line.h"

namespace bv {

extern const Command train_command, recipes_command, lint_command, preview_command, eval_command,
    predict_command, report_command, completion_command, help_command;
extern const Command data_split_command, data_stats_command, data_check_command, data_fetch_command;
extern const Command weights_list_command, weights_fetch_command;
extern const Command data_list_command, data_pack_command, data_index_command, data_unpack_command;

std::span<const Command> commands();

// The training options of train, and of the commands that show a run before it begins.
inline constexpr std::string_view of_training[] = {"model",     "Data",       "Model",  "Steps",
                                                   "Optimizer", "Run folder", "Machine"};

// Finds the command in `all` that the arguments begin with, and the number of words in its name.
// Without a command's name, the command is train. Throws UserError if the first word is neither a
// command nor a model.
struct Named {
  const Command* command;
  size_t words;
};
Named command_of(std::span<const std::string> arguments, std::span<const Command> all);

// Parses the arguments after the program's name. Throws UserError.
CommandLine parse_command_line(std::span<const std::string> arguments);

// Prints the words that can stand in place of the last one, for a shell: a line `words`, `files` or
// `folders`, then for words a line each, with its help after a tab. Returns the exit code.
int print_completions(std::span<const std::string> words);

// Runs the command that the arguments name; returns the exit code. Prints an error as one line.
int run_command(const std::vector<std::string>& argv);

}  // namespace bv

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

// Runs the command that the arguments name; returns the exit code. Prints an error as one line.
int run_command(const std::vector<std::string>& argv);

}  // namespace bv

// The launcher's commands, one row each; each command has a file of its own beside this one.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "engine/options/command_line.h"

namespace bv {

extern const Command train_command, recipes_command, lint_command, preview_command, eval_command,
    predict_command, report_command, completion_command, help_command;
extern const Command data_split_command, data_stats_command, data_check_command, data_fetch_command;
extern const Command data_list_command, data_pack_command, data_index_command, data_unpack_command;

std::span<const Command> commands();

// The command that the arguments begin with, of `all`, and how many words its name has. Without
// one it is train, whose name may be left out. Throws UserError for a word that is neither a
// command nor a model.
struct Named {
  const Command* command;
  size_t words;
};
Named command_of(std::span<const std::string> arguments, std::span<const Command> all);

// Parses the arguments after the program's name. Throws UserError.
CommandLine parse_command_line(std::span<const std::string> arguments);

// Does what they ask for; returns the exit code.
int run_command(const std::vector<std::string>& argv);

}  // namespace bv

// Merges a run's options from all their sources, and writes them to config.json.
//
//   built-in < model's recipe < its section for the kind of data < --recipe NAME < --config FILE
//   < command line
//   --resume DIR: DIR/config.json < those options of the same sources that --resume may change
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"
#include "data/dataset.h"
#include "engine/options/command.h"
#include "engine/options/model_config.h"
#include "engine/options/named_recipe.h"
#include "engine/options/option_values.h"

namespace bv {

struct GraphOptions;  // models/family.h

// Parses the options in a config file. Throws UserError naming path and key.
Values parse_config(std::string_view text, const std::string& path);

// The user's request: the command line and all files that it names. They are read once, because
// they may change while the run starts.
struct Request {
  CommandLine line;
  NamedRecipe recipe;  // --recipe
  Values config;       // --config
  ModelConfig model;
  // For a new run, without the model's recipe: enough to find data, device and -n. For a resumed
  // run, complete, with `out` as its folder.
  Options options;
};
// With --resume, a model and a folder without a run, returns the request for a new run there.
Request read_request(const CommandLine&);
// Whether MODEL, --recipe or --config names a model, so that --resume may start a run.
bool names_model(const CommandLine&);
// The folder of --resume: DIR, or with `auto` that of --out; none without --resume.
std::optional<std::string> folder_to_resume(const CommandLine&);
// The error, after the name of the config file or recipe from which its option is.
UserError with_place(const CommandLine&, const UserError&);
Request read_new_run(const CommandLine&);  // ignores --resume
// All options of a new run, with image and patch size resolved.
Options resolve_options(const Request&, const ModelConfig&, DataKind);

std::string config_of(const std::string& folder);  // the path of a run's config.json
// "; RUN is the run" if a path lies in that run's folder; else empty.
std::string run_above(const std::string& path);
// The options in a run's config.json, which must exist.
Options options_of_run(const std::string& folder);
// Throws UserError if a run's data isn't where its config.json says, unless --data is given.
void require_data_of_run(const Options&);
void set_from_command_line(Options&, const CommandLine&);
// Sets image and patch size from the kind of data and the model unless they are given. Throws
// UserError if they don't fit.
void resolve_sizes(Options&, const ModelConfig&, DataKind);
// The options of a model's graph, without those decided by data and processes.
GraphOptions graph_options(const Options&);

// Options that a checkpoint keeps: those that decide the weights, and the number of epochs.
Values options_to_keep(const Options&);
// Refuses a config.json that was edited since the checkpoint, whose options are `kept`: throws
// UserError naming the first option that differs.
void refuse_edits(const Options&, const Values& kept);

// config.json: every option of the run, in the table's order. Equal options give equal text.
std::string config_to_json(const Options&);

}  // namespace bv

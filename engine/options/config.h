// A run's options from all their sources, and back to config.json.
//
//   built-in < model's recipe < its section for the kind of data < --recipe NAME < --config FILE
//   < command line
//   --resume DIR: DIR/config.json < those options of the command line that may change
#pragma once
#include <string>
#include <string_view>

#include "data/dataset.h"
#include "engine/options/command_line.h"
#include "engine/options/model_config.h"
#include "engine/options/named_recipe.h"
#include "engine/options/option_values.h"

namespace bv {

struct GraphOptions;  // models/family.h

// The options in a config file. Throws UserError naming path and key.
Values parse_config(std::string_view text, const std::string& path);

// The user's request: the command line, with all files that it leads to. They are read once, as
// they may change while the run starts.
struct Request {
  CommandLine line;
  NamedRecipe recipe;  // --recipe
  Values config;       // --config
  ModelConfig model;
  // A new run's lack the model's recipe: they are enough to find data, device and -n. A resumed
  // run's are all there; `out` is its folder.
  Options options;
};
Request read_request(const CommandLine&);
Request read_new_run(const CommandLine&);  // whatever --resume says
// All options of a new run, with image and patch size resolved.
Options resolve_options(const Request&, const ModelConfig&, DataKind);

// For commands that work with a finished run: its config.json, which must be there.
Options options_of_run(const std::string& folder);
void set_from_command_line(Options&, const CommandLine&);
// Image and patch size: the model's where they are not set. Throws UserError where they don't fit.
void resolve_sizes(Options&, const ModelConfig&, DataKind);
// The options of a model's graph, without what data and processes decide.
GraphOptions graph_options(const Options&);

// Options that a checkpoint keeps: those that decide the weights, and the number of epochs.
Values options_to_keep(const Options&);
// Throws UserError naming the first option of the resumed run that config.json, edited since the
// checkpoint, has changed; `kept` is the checkpoint's.
void refuse_edits(const Options&, const Values& kept);

// config.json: every option of the run, in the table's order; the same text for the same options.
std::string config_to_json(const Options&);

}  // namespace bv

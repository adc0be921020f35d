// From defaults, recipe, --config file and command line to the options of a run, and back to
// config.json.
//
//   built-in < model's recipe < its section for the kind of data < --config FILE < command line
//   --resume DIR: DIR/config.json < what the command line may give anew
#pragma once
#include <string>
#include <string_view>

#include "data/dataset.h"
#include "engine/base/json.h"
#include "engine/options/command_line.h"
#include "engine/options/model_config.h"
#include "engine/options/option_table.h"

namespace bv {

// The options in a config file. Throws UserError naming path and key.
Values parse_config(std::string_view text, const std::string& path);
// The same from a JSON object inside a file; `where` names it in messages. `recipe`: only options
// that a recipe may hold.
Values values_from_json(const JsonValue& object, const std::string& where, bool recipe);

// What is known before data and model are looked at: defaults < --config FILE < command line.
// Enough to find model, data, device and -n.
Options preliminary_options(const CommandLine&);
// All options of a new run. Image and patch size are resolved from here on.
Options resolve_options(const CommandLine&, const ModelConfig&, DataKind);
// All options of a run that goes on: options.out is its folder.
Options resumed_options(const CommandLine&);
// preliminary_options, or resumed_options with --resume.
Options initial_options(const CommandLine&);

// config.json: every option of the run, in the table's order; the same text for the same options.
std::string config_to_json(const Options&);

}  // namespace bv

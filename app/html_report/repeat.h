// The command line that repeats a run.
#pragma once
#include <string>

#include "data/dataset.h"
#include "engine/options/model_config.h"
#include "engine/options/options.h"

namespace bv {

// Contains the options that were given and differ from the model's recipe for this kind of data.
// Paths are absolute. Every field of `options` must be resolved.
std::string repeat_command(const Options& options, const ModelConfig&, DataKind);

// The lines of commands that repeat a run which has resumed with other options that decide its
// weights or evaluations: `before`, the earlier commands, with `stopped` (" --steps 90" if that run
// had not reached its end), and the resumption.
std::string continued_command(const std::string& before, const Options&,
                              const std::string& stopped);

}  // namespace bv

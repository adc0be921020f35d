// The command line that repeats a run.
#pragma once
#include <string>

#include "data/dataset.h"
#include "engine/options/model_config.h"
#include "engine/options/options.h"

namespace bv {

// Contains the options that differ from the model's recipe for this kind of data. Paths are
// absolute. Every field of `options` must be resolved.
std::string repeat_command(const Options& options, const ModelConfig&, DataKind);

}  // namespace bv

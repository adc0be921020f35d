// The command line that repeats a run.
#pragma once
#include <string>

#include "data/dataset.h"
#include "engine/options/model_config.h"
#include "engine/options/options.h"

namespace bv {

// With the options that differ from what the model's recipe gives for this kind of data. Paths are
// absolute. `options`: with every field resolved.
std::string repeat_command(const Options& options, const ModelConfig&, DataKind);

}  // namespace bv

// Reads the file of --weights and checks that it is for the run's model.
#pragma once
#include <utility>

#include "engine/files/weights.h"
#include "engine/options/model_config.h"
#include "engine/options/options.h"

namespace bv {

// Reads the file of --weights and its metadata; both are empty without --weights, or if the run has
// a checkpoint. Throws UserError.
std::pair<TensorFile, WeightsInfo> read_starting_weights(const Options&, const ModelConfig&);

}  // namespace bv

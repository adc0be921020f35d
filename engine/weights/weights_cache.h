// The folder where `weights fetch` puts public weights and training looks for them.
#pragma once
#include <filesystem>
#include <string>

#include "engine/weights/public_weights.h"

namespace bv {

// $BAREVISION_CACHE, else barevision/weights in $XDG_CACHE_HOME or ~/.cache. Throws UserError if
// none of them is set.
std::filesystem::path weights_cache();

// The path of the weights that the user names: `given` itself or, if it names public weights, the
// path of their file in the cache. If the cache lacks the file, throws UserError, which says how to
// get it and ends with `otherwise` ("; ...").
std::string path_of_weights(const std::string& given, const std::string& otherwise = "");

// Reads a file of --weights. Metadata that a file of public weights lacks is added from
// PublicWeights::info. Throws UserError.
TensorFile read_weights_file(const std::string& given, const std::string& otherwise = "");

}  // namespace bv

// The folder where `weights fetch` puts public weights and training looks for them.
#pragma once
#include <filesystem>
#include <string>

#include "engine/files/names/weight_names.h"
#include "engine/weights/public_weights.h"

namespace bv {

// $BAREVISION_CACHE, else barevision/weights in $XDG_CACHE_HOME or ~/.cache. Throws UserError if
// none of them is set.
std::filesystem::path weights_cache();

// The path of the weights that the user names: a file or, if `given` names public weights, the path
// of their file in the cache. If it isn't there, throws UserError, which says how to get it and
// ends with `otherwise` ("; ...").
std::string path_of_weights(const std::string& given, const std::string& otherwise = "");

// The SHA-256 of the file of public weights. Throws UserError if it isn't the recorded one.
std::string checked_sha256(const PublicWeights&, const std::string& path);

// Reads a file of --weights, which may be FILE:KEY. `model`: the tensors to look for, if the file
// has several sets. A file of public weights is checked against its recorded SHA-256, and metadata
// that it lacks is added from PublicWeights::info.
// Throws UserError.
TensorFile read_weights_file(const std::string& given, const ListParameters& model = {},
                             const std::string& otherwise = "");

}  // namespace bv

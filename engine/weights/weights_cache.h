// The folder where `weights fetch` puts public weights and training looks for them.
#pragma once
#include <filesystem>
#include <string>

#include "engine/weights/public_weights.h"

namespace bv {

// $BAREVISION_CACHE, else barevision/weights in $XDG_CACHE_HOME or ~/.cache. Throws UserError if
// none of them is set.
std::filesystem::path weights_cache();

// `given` as the user may name weights: a file's path, or a name of public weights, which becomes
// that of its file in the cache. Throws UserError if that isn't there: how to get it, or what to
// do `otherwise` ("; ...").
std::string path_of_weights(const std::string& given, const std::string& otherwise = "");

// Reads a file of --weights. What a file of public weights doesn't say of itself becomes its
// metadata. Throws UserError.
TensorFile read_weights_file(const std::string& given, const std::string& otherwise = "");

}  // namespace bv

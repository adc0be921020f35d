// Names of public weights, as given to --weights and `weights fetch`.
#pragma once
#include <string>

namespace bv {

// Whether `given` is "timm/..." or "torchvision/...", and not the path of a file.
bool names_public_weights(const std::string& given);

}  // namespace bv

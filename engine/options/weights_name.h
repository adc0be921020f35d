// Names of public weights, as given to --weights and `weights fetch`.
#pragma once
#include <string>

namespace bv {

// Whether it is "timm/..." or "torchvision/...", unless there is a file with that path.
bool names_public_weights(const std::string& given);

}  // namespace bv

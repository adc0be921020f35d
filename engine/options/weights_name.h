// Names of public weights, as --weights and `weights fetch` take them.
#pragma once
#include <string>

namespace bv {

// "timm/..." or "torchvision/...", unless there is a file of that path.
bool names_public_weights(const std::string& given);

}  // namespace bv

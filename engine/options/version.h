// --version: the commit and the build's features.
#pragma once
#include <string>

namespace bv {

std::string version_text();

}  // namespace bv

// --version: which commit this is, and what it was built with.
#pragma once
#include <string>

namespace bv {

std::string version_text();

}  // namespace bv

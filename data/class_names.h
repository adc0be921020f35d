// Files of class names, one per line, in label order.
#pragma once
#include <string>
#include <vector>

namespace bv {

// Throws DataError for an empty line, a repeated name, a name that isn't printable UTF-8, or fewer
// than two names. Empty lines at the end are ignored.
std::vector<std::string> read_class_names(const std::string& file);

}  // namespace bv

// Files of class names, one a line in the order of the labels.
#pragma once
#include <string>
#include <vector>

namespace bv {

// Throws DataError for an empty line, a name given twice or one that isn't text, or fewer than two
// names. Empty lines at the end don't count.
std::vector<std::string> read_class_names(const std::string& file);

}  // namespace bv

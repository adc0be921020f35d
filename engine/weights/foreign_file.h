// Files that are given as weights and are something else.
#pragma once
#include <string>
#include <string_view>

namespace bv {

// Says what a file that begins with these bytes seems to be, and what to do; empty: not known.
std::string about_foreign_file(std::string_view first, const std::string& path);

// Whether the file is a text that begins with "{", as JSON does.
bool begins_like_json(std::string_view first);

}  // namespace bv

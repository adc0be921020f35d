// A guard before texts of unknown origin are turned into a tree.
#pragma once
#include <string_view>

namespace bv {

// Whether lists and objects stand in each other more than `most` deep, in a text that may not even
// be JSON.
inline bool json_deeper_than(std::string_view text, int most) {
  int depth = 0;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted && c == '\\')
      ++i;
    else if (c == '"')
      quoted = !quoted;
    else if (!quoted && (c == '[' || c == '{') && ++depth > most)
      return true;
    else if (!quoted && (c == ']' || c == '}'))
      --depth;
  }
  return false;
}

}  // namespace bv

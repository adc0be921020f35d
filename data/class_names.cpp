#include "data/class_names.h"

#include <algorithm>
#include <map>

#include "base/file_io.h"
#include "base/text.h"
#include "data/dataset.h"

namespace bv {

std::vector<std::string> read_class_names(const std::string& file) {
  constexpr uint64_t max_bytes = 64 << 20;
  std::vector<std::string> names = split(read_text_file(file, max_bytes), '\n');
  for (std::string& name : names)
    while (name.ends_with('\r') || name.ends_with(' ')) name.pop_back();
  while (!names.empty() && names.back().empty()) names.pop_back();
  std::map<std::string, size_t> lines;
  for (size_t i = 0; i < names.size(); ++i) {
    const std::string &name = names[i], line = file + ": line " + std::to_string(i + 1);
    const auto is_control = [](unsigned char c) { return (c < ' ' && c != '\t') || c == 0x7f; };
    if (name.empty())
      throw DataError(line + " is empty; write a class's name on each line, in label order");
    if (std::ranges::any_of(name, is_control))
      throw DataError(line + " has a control character; save the file as plain text, in UTF-8");
    if (const auto [at, added] = lines.try_emplace(name, i + 1); !added)
      throw DataError(line + " names the class '" + printable(name) + "' twice, line " +
                      std::to_string(at->second) + " does already; give it another name");
  }
  if (names.size() < 2)
    throw DataError(file + ": " + (names.empty() ? "no names" : "one name") +
                    "; write those of at least two classes, one a line in label order");
  return names;
}

}  // namespace bv

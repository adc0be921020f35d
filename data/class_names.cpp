#include "data/class_names.h"

#include <algorithm>
#include <map>

#include "base/file_io.h"
#include "base/text.h"
#include "data/dataset.h"

namespace bv {

std::vector<std::string> read_class_names(const std::string& file) {
  constexpr uint64_t max_bytes = 64 << 20;
  constexpr std::string_view byte_order_mark = "\xEF\xBB\xBF", blanks = " \t\r";
  std::string text = read_text_file(file, max_bytes);
  if (text.starts_with(byte_order_mark)) text.erase(0, byte_order_mark.size());
  std::vector<std::string> names = split(text, '\n');
  for (std::string& name : names) {
    name.erase(0, name.find_first_not_of(blanks));
    name.resize(name.find_last_not_of(blanks) + 1);
  }
  while (!names.empty() && names.back().empty()) names.pop_back();
  std::map<std::string, size_t> lines;
  for (size_t i = 0; i < names.size(); ++i) {
    const std::string &name = names[i], line = file + ": line " + std::to_string(i + 1);
    if (name.empty())
      throw DataError(line + " is empty; write a class's name on each line, in label order");
    if (printable(name, name.npos) != name)
      throw DataError(line +
                      " has a control character or is not UTF-8; save the file as plain "
                      "text, in UTF-8");
    if (const auto [at, added] = lines.try_emplace(name, i + 1); !added)
      throw DataError(line + " names the class '" + printable(name) + "', as does line " +
                      std::to_string(at->second) + "; give it another name");
  }
  if (names.size() < 2)
    throw DataError(file + ": " + (names.empty() ? "no names" : "one name") +
                    "; write those of at least two classes, one per line in label order");
  return names;
}

}  // namespace bv

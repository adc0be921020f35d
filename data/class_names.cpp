#include "data/class_names.h"

#include <algorithm>
#include <map>

#include "base/files/file_io.h"
#include "base/text.h"
#include "base/unicode/canonical.h"
#include "data/dataset.h"

namespace bv {
namespace {

constexpr std::string_view blanks = " \t\r";

std::string beginning_of(const std::string& text) {
  return text.substr(0, text.find_first_not_of(blanks));
}
std::string end_of(const std::string& text) {
  return text.substr(text.find_last_not_of(blanks) + 1);
}
std::string without_blanks(std::string text) {
  text.resize(text.find_last_not_of(blanks) + 1);
  return text.erase(0, beginning_of(text).size());
}

// Equal for names that look alike.
std::string look_of(const std::string& name) {
  return without_blanks(in_lower_case(canonical(name)));
}

// "upper and lower case", of two names that look alike.
std::string difference(const std::string& one, const std::string& other) {
  const std::string a = canonical(one), b = canonical(other);
  if (a == b) return "their Unicode form";
  std::string text;
  const auto add = [&](bool differs, const char* what) {
    if (differs) text += (text.empty() ? "" : " and ") + std::string(what);
  };
  add(without_blanks(a) != without_blanks(b), "upper and lower case");
  add(end_of(a) != end_of(b), "a blank at the end");
  add(beginning_of(a) != beginning_of(b), "a blank at the beginning");
  return text;
}

}  // namespace

std::vector<std::string> read_class_names(const std::string& file) {
  constexpr uint64_t max_bytes = 64 << 20;
  constexpr std::string_view byte_order_mark = "\xEF\xBB\xBF";
  std::string text = read_text_file(file, max_bytes);
  if (text.starts_with(byte_order_mark)) text.erase(0, byte_order_mark.size());
  std::vector<std::string> names = split(text, '\n');
  for (std::string& name : names) name = without_blanks(std::move(name));
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
    if (const auto [at, added] = lines.try_emplace(canonical(name), i + 1); !added)
      throw DataError(line + " names the class '" + printable(name) + "', as does line " +
                      std::to_string(at->second) + "; give it another name");
  }
  if (names.size() < 2)
    throw DataError(file + ": " + (names.empty() ? "no names" : "one name") +
                    "; write those of at least two classes, one per line in label order");
  return names;
}

bool same_classes(std::span<const std::string> a, std::span<const std::string> b) {
  return std::ranges::equal(a, b, {}, canonical, canonical);
}

ClassPositions::ClassPositions(std::span<const std::string> names) {
  for (size_t i = 0; i < names.size(); ++i) at_.try_emplace(canonical(names[i]), i);
}
std::optional<size_t> ClassPositions::of(const std::string& name) const {
  const auto at = at_.find(canonical(name));
  return at == at_.end() ? std::nullopt : std::optional(at->second);
}

void refuse_two_forms(std::span<const std::string> names, const std::string& where) {
  std::map<std::string, const std::string*> known;
  for (const std::string& name : names)
    if (const auto [at, added] = known.try_emplace(canonical(name), &name); !added)
      throw DataError(where + ": its classes '" + *at->second + "' and '" + name +
                      "' differ only in their Unicode form (for a shell they are " +
                      in_escapes(*at->second) + " and " + in_escapes(name) +
                      "); rename one, or move its images into the other");
}

std::vector<std::string> alike_names(std::span<const std::string> names) {
  std::map<std::string, const std::string*> known;
  std::vector<std::string> lines;
  for (const std::string& name : names) {
    const std::string*& before = known[look_of(name)];
    if (before)
      lines.push_back("'" + *before + "' and '" + name + "' differ only in " +
                      difference(*before, name));
    before = &name;
  }
  return lines;
}

std::string lookalike_of(const std::string& name, std::span<const std::string> names) {
  const auto at = std::ranges::find(names, look_of(name), look_of);
  return at == names.end() ? ""
                           : "; '" + *at + "' differs from it only in " + difference(name, *at);
}

}  // namespace bv

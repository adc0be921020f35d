// JSON by nlohmann's library, whose objects keep the order of their members in the file, and a
// strict reader for files that people edit (models/*.json, config.json).
#pragma once
#include <array>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <string>
#include <string_view>

#include "base/json_fwd.h"

namespace bv {

// SAX handler (Json::sax_parse) for text that is too large, or not trusted enough, to parse into a
// tree. Parsing ends when a handler function returns false.
using JsonEvents = nlohmann::json_sax<Json>;

// Limits nesting and keys and refuses duplicate keys, so that no file can crash or hang the reader
// or be ambiguous. Throws UserError unless `text` is one object; the error names `path` and, if the
// syntax is wrong, line and column.
Json parse_json_object(std::string_view text, const std::string& path);

std::string_view kind_of(const Json&);  // "a number"
// A string, number or boolean as the text of an option's value: 1e3 gives "1000". Else empty.
std::string scalar_text(const Json&);

// A number with `digits` as in format_number; null if it is not finite.
Json json_number(double value, int digits = 0);
Json json_numbers(std::span<const double>, int digits = 0);
// On one line; bytes that are not UTF-8 are replaced.
std::string to_line(const Json&);

// Reads an object's members by name. Throws UserError that names the file and the member.
class JsonReader {
 public:
  // Both must outlive the reader. path: the file's; messages begin with it.
  JsonReader(const Json& object, const std::string& path) : object_(object), path_(path) {}

  bool has(const std::string& key) const { return object_.contains(key); }
  const Json& need(const std::string& key);
  const std::string& text(const std::string& key);
  double number(const std::string& key, double min, double max);
  int whole(const std::string& key, int max);            // from 1
  uint64_t count(const std::string& key, uint64_t max);  // from 0
  template <size_t n>                                    // form: "must be 3 numbers"
  std::array<double, n> numbers(const std::string& key, const char* form, double min, double max) {
    const Json& list = of_kind(key, "a list");
    if (list.size() != n) fail(key, form);
    std::array<double, n> values;
    for (size_t i = 0; i < n; ++i) values[i] = checked(key, list[i], min, max);
    return values;
  }
  bool flag(const std::string& key);           // false if it is missing
  const Json* object(const std::string& key);  // null if it is missing
  void refuse_unknown() const;                 // throws if a member was never read

  [[noreturn]] void fail(const std::string& reason) const;
  [[noreturn]] void fail(const std::string& key, const std::string& reason) const;

 private:
  const Json& object_;
  const std::string& path_;
  std::set<std::string> known_;

  const Json* find(const std::string& key, std::string_view kind);  // null if it is missing
  const Json& of_kind(const std::string& key, std::string_view kind);
  double checked(const std::string& key, const Json&, double min, double max) const;
};

}  // namespace bv

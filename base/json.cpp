#include "base/json.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <regex>
#include <vector>

#include "base/error.h"
#include "base/text.h"

namespace bv {

namespace {

constexpr int max_depth = 8;
constexpr size_t max_keys = 1000;

bool is_whole(double value) { return std::abs(value) < 1e15 && value == std::floor(value); }

std::string line_and_column(std::string_view text, size_t position) {
  const std::string_view before = text.substr(0, position > 0 ? position - 1 : 0);
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const size_t newline = before.rfind('\n');
  const size_t column = before.size() - (newline == before.npos ? 0 : newline + 1) + 1;
  return "line " + std::to_string(line) + ", column " + std::to_string(column);
}

constexpr const char* spaces = " \t\r\n";

// Why a text isn't JSON: "is empty", "looks like YAML; ..."; empty if its format is unknown.
std::string other_format(std::string_view text) {
  const size_t first = text.find_first_not_of(spaces);
  if (first == text.npos) return "is empty";
  if (text[first] == '{') return "";
  static const std::regex yaml(R"((^|\n)\s*[A-Za-z_]+:(\s|$))"), toml(R"((^|\n)\s*[A-Za-z_]+\s*=)");
  const std::string beginning(text.substr(0, 2000));
  for (const auto& [name, form] : {std::pair("YAML", &yaml), {"TOML", &toml}})
    if (std::regex_search(beginning, *form))
      return std::string("looks like ") + name + R"(; write JSON: {"key": value, ...})";
  return "";
}

// Whether parsing stopped at a closing bracket after a comma, which other formats allow.
bool trails_comma(std::string_view text, size_t position) {
  if (position == 0 || position > text.size() || !std::strchr("}]", text[position - 1]))
    return false;
  const size_t before = text.find_last_not_of(spaces, position - 2);
  return before != text.npos && position >= 2 && text[before] == ',';
}

// A form of other languages at the character where parsing stopped.
std::string other_form(std::string_view text, size_t position) {
  if (position == 0 || position > text.size()) return "";
  const size_t word = text.find_last_of(std::string(spaces) + "{[,:", position - 1);
  const std::string_view rest = text.substr(word == text.npos ? 0 : word + 1);
  if (rest.starts_with('\'')) return "text stands in double quotes";
  if (rest.starts_with("//") || rest.starts_with('#'))
    return "there are no comments in JSON but keys that begin with //";
  for (const char* name : {"NaN", "Infinity", "-Infinity", "nan", "inf", "True", "False", "None"})
    if (rest.starts_with(name)) return std::string("there is no ") + name + " in JSON";
  return "";
}

// "[json.exception.parse_error.101] parse error at line 3, column 1: syntax error ... - unexpected
// '}'; expected a key" becomes ": unexpected '}'; expected a key".
std::string reason_of(const std::exception& e) {
  const std::string_view why = e.what();
  const size_t dash = why.find(" - ");
  return dash == why.npos ? "" : ": " + printable(why.substr(dash + 3));
}

}  // namespace

Json parse_json_object(std::string_view text, const std::string& path) try {
  std::array<std::set<std::string>, max_depth + 1> keys;  // of the open objects, by their depth
  const auto check = [&](int depth, Json::parse_event_t event, Json& parsed) {
    using enum Json::parse_event_t;
    const auto place = static_cast<size_t>(depth);
    if ((event == object_start || event == array_start) && depth == max_depth)
      throw UserError(path + ": nested too deeply");
    if (event == object_start) keys[place + 1].clear();
    if (event == key && !keys[place].insert(parsed).second)
      throw UserError(path + ": the key '" + printable(parsed.get_ref<std::string&>()) +
                      "' is given twice");
    if (event == key && keys[place].size() > max_keys)
      throw UserError(path + ": an object has too many keys");
    return true;
  };
  Json root = Json::parse(text, check);
  if (!root.is_object())
    throw UserError(path + ": an object { ... } is expected, this is " +
                    std::string(kind_of(root)));
  return root;
} catch (const Json::parse_error& e) {
  if (const std::string other = other_format(text); !other.empty())
    throw UserError(path + ": " + other);
  if (trails_comma(text, e.byte))
    throw UserError(path + ": " + line_and_column(text, text.find_last_of(',', e.byte - 1) + 1) +
                    ": a comma with nothing after it; remove it");
  const std::string other = other_form(text, e.byte);
  throw UserError(path + ": " + (e.byte > 0 ? line_and_column(text, e.byte) + ": " : "") +
                  "this is not JSON" + (other.empty() ? reason_of(e) : ": " + other));
} catch (const Json::out_of_range& e) {
  throw UserError(path + ": a number out of range" + reason_of(e));
}

std::string_view kind_of(const Json& value) {
  return value.is_null()      ? "null"
         : value.is_boolean() ? "true or false"
         : value.is_number()  ? "a number"
         : value.is_string()  ? "text"
         : value.is_array()   ? "a list"
                              : "an object";
}

std::string scalar_text(const Json& value) {
  if (value.is_string()) return value;
  if (value.is_number_float()) {
    const double number = value;
    return is_whole(number) ? std::to_string(static_cast<int64_t>(number)) : format_number(number);
  }
  return value.is_number() || value.is_boolean() ? value.dump() : "";
}

Json json_number(double value, int digits) {
  if (!std::isfinite(value)) return nullptr;
  if (is_whole(value)) return static_cast<int64_t>(value);
  return digits == 0 ? value : *parse_number(format_number(value, digits));
}

Json json_numbers(std::span<const double> values, int digits) {
  Json list = Json::array();
  for (const double value : values) list.push_back(json_number(value, digits));
  return list;
}

std::string to_line(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

const Json& JsonReader::need(const std::string& key) {
  known_.insert(key);
  const auto value = object_.find(key);
  if (value == object_.end()) fail(key, "is missing");
  return *value;
}

const std::string& JsonReader::text(const std::string& key) {
  return of_kind(key, "text").get_ref<const std::string&>();
}

double JsonReader::number(const std::string& key, double min, double max) {
  return checked(key, of_kind(key, "a number"), min, max);
}

int JsonReader::whole(const std::string& key, int max) {
  const double value = number(key, 1, max);
  if (value != static_cast<int>(value)) fail(key, "is not a whole number");
  return static_cast<int>(value);
}

uint64_t JsonReader::count(const std::string& key, uint64_t max) {
  const Json& value = of_kind(key, "a number");
  if (!value.is_number_unsigned() || value.get<uint64_t>() > max) fail(key, "is not a count");
  return value;
}

bool JsonReader::flag(const std::string& key) {
  const Json* value = find(key, "true or false");
  return value != nullptr && value->get<bool>();
}

const Json* JsonReader::object(const std::string& key) { return find(key, "an object"); }

void JsonReader::refuse_unknown() const {
  for (const auto& [key, value] : object_.items()) {
    if (known_.contains(key)) continue;
    const std::vector<std::string> known(known_.begin(), known_.end());
    fail("unknown key '" + printable(key) + "'" + suggestion(key, known));
  }
}

void JsonReader::fail(const std::string& reason) const { throw UserError(path_ + ": " + reason); }

void JsonReader::fail(const std::string& key, const std::string& reason) const {
  fail("'" + key + "' " + reason);
}

const Json* JsonReader::find(const std::string& key, std::string_view kind) {
  known_.insert(key);
  const auto value = object_.find(key);
  if (value == object_.end()) return nullptr;
  if (kind_of(*value) != kind) fail(key, "must be " + std::string(kind));
  return &*value;
}

const Json& JsonReader::of_kind(const std::string& key, std::string_view kind) {
  need(key);
  return *find(key, kind);
}

double JsonReader::checked(const std::string& key, const Json& value, double min,
                           double max) const {
  if (!value.is_number()) fail(key, "must be a number");
  const double number = value;
  if (!(number >= min && number <= max))
    fail(key, "must be from " + format_number(min) + " to " + format_number(max));
  return number;
}

}  // namespace bv

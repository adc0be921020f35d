#include "base/json.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"

namespace bv {

namespace {

constexpr size_t max_depth = 8, max_keys = 1000;
using Parser = nlohmann::json;
using Kind = JsonValue::Kind;

// Builds the tree from the parser's events. One that returns false stops parsing, for a `problem`.
class TreeBuilder : public JsonEvents {
 public:
  JsonValue root;
  std::string problem;
  size_t problem_at = 0;

  bool null() override { return scalar(Kind::null, ""); }
  bool boolean(bool value) override { return scalar(Kind::boolean, value ? "true" : "false"); }
  bool number_integer(int64_t value) override {
    return scalar(Kind::number, std::to_string(value));
  }
  bool number_unsigned(uint64_t value) override {
    return scalar(Kind::number, std::to_string(value));
  }
  bool number_float(double value, const std::string&) override {
    // 1e3 is a whole number too.
    const bool whole = std::abs(value) < 1e15 && value == std::floor(value);
    return scalar(Kind::number,
                  whole ? std::to_string(static_cast<int64_t>(value)) : format_number(value));
  }
  bool string(std::string& value) override { return scalar(Kind::text, std::move(value)); }
  bool start_object(size_t) override { return open(Kind::object); }
  bool start_array(size_t) override { return open(Kind::list); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(std::string& name) override {
    if (stack_.back()->members.size() == max_keys) return fail("an object has too many keys");
    for (const auto& member : stack_.back()->members)
      if (member.first == name) return fail("the key '" + printable(name) + "' is given twice");
    stack_.back()->members.emplace_back(std::move(name), JsonValue{});
    return true;
  }
  void invalid(size_t position, const std::exception& e) override {
    problem_at = position;
    // "[json.exception.parse_error.101] parse error at line 3, column 1: syntax error ... -
    // unexpected '}'; expected a key"
    const std::string_view why = e.what();
    const size_t dash = why.find(" - ");
    if (why.starts_with("[json.exception.out_of_range"))
      fail("a number out of range");
    else
      fail("this is not JSON" + (dash == why.npos ? "" : ": " + printable(why.substr(dash + 3))));
  }

 private:
  std::vector<JsonValue*> stack_;

  bool fail(std::string reason) {
    problem = std::move(reason);
    return false;
  }
  JsonValue& place() {
    if (stack_.empty()) return root;
    JsonValue& parent = *stack_.back();
    return parent.kind == Kind::object ? parent.members.back().second : parent.items.emplace_back();
  }
  bool scalar(Kind kind, std::string text) {
    JsonValue& value = place();
    value.kind = kind;
    value.text = std::move(text);
    return true;
  }
  // The parent of an open value grows only after it is closed, so pointers on the stack stay valid.
  bool open(Kind kind) {
    if (stack_.size() == max_depth) return fail("nested too deeply");
    JsonValue& value = place();
    value.kind = kind;
    stack_.push_back(&value);
    return true;
  }
  bool close() {
    stack_.pop_back();
    return true;
  }
};

std::string line_and_column(std::string_view text, size_t position) {
  const std::string_view before = text.substr(0, position > 0 ? position - 1 : 0);
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const size_t newline = before.rfind('\n');
  const size_t column = before.size() - (newline == before.npos ? 0 : newline + 1) + 1;
  return "line " + std::to_string(line) + ", column " + std::to_string(column);
}

}  // namespace

std::string_view name_of(Kind kind) {
  constexpr std::string_view names[] = {"null", "true or false", "a number",
                                        "text", "a list",        "an object"};
  return names[static_cast<size_t>(kind)];
}

const JsonValue* JsonValue::find(std::string_view key) const {
  for (const auto& [name, value] : members)
    if (name == key) return &value;
  return nullptr;
}

bool read_json(std::string_view text, JsonEvents& events) {
  return Parser::sax_parse(text.begin(), text.end(), &events);
}

JsonValue parse_json_object(std::string_view text, const std::string& path) {
  TreeBuilder builder;
  if (!read_json(text, builder)) {
    const std::string where =
        builder.problem_at > 0 ? line_and_column(text, builder.problem_at) + ": " : "";
    throw UserError(path + ": " + where + builder.problem);
  }
  if (builder.root.kind != Kind::object)
    throw UserError(path + ": an object { ... } is expected, this is " +
                    std::string(name_of(builder.root.kind)));
  return std::move(builder.root);
}

int JsonReader::whole(const std::string& key, int max) {
  const double value = number(key, 1, max);
  if (value != static_cast<int>(value)) fail(key, "is not a whole number");
  return static_cast<int>(value);
}

bool JsonReader::flag(const std::string& key) {
  const JsonValue* value = find(key, Kind::boolean);
  return value != nullptr && value->text == "true";
}

const JsonValue* JsonReader::object(const std::string& key) { return find(key, Kind::object); }

void JsonReader::refuse_unknown() const {
  for (const auto& [key, value] : object_.members) {
    if (known_.contains(key)) continue;
    const std::vector<std::string> known(known_.begin(), known_.end());
    fail("unknown key '" + printable(key) + "'" + suggestion(key, known));
  }
}

void JsonReader::fail(const std::string& reason) const { throw UserError(path_ + ": " + reason); }

void JsonReader::fail(const std::string& key, const std::string& reason) const {
  fail("'" + key + "' " + reason);
}

const JsonValue* JsonReader::find(const std::string& key, Kind kind) {
  known_.insert(key);
  const JsonValue* value = object_.find(key);
  if (value != nullptr) check_kind(key, *value, kind);
  return value;
}

const JsonValue& JsonReader::need(const std::string& key, Kind kind) {
  const JsonValue* value = find(key, kind);
  if (value == nullptr) fail(key, "is missing");
  return *value;
}

void JsonReader::check_kind(const std::string& key, const JsonValue& value, Kind kind) const {
  if (value.kind != kind) fail(key, "must be " + std::string(name_of(kind)));
}

double JsonReader::checked(const std::string& key, const JsonValue& value, double min,
                           double max) const {
  check_kind(key, value, Kind::number);
  const double number = parse_number(value.text).value_or(min - 1);
  if (!(number >= min && number <= max))
    fail(key, "must be from " + format_number(min) + " to " + format_number(max));
  return number;
}

std::string quote_json(std::string_view text) {
  return Parser(text).dump(-1, ' ', false, Parser::error_handler_t::replace);
}

std::string json_number(double value, int digits) {
  return std::isfinite(value) ? format_number(value, digits) : "null";
}

JsonObject& JsonObject::text(std::string_view key, std::string_view value) {
  return json(key, quote_json(value));
}
JsonObject& JsonObject::whole(std::string_view key, int64_t value) {
  return json(key, std::to_string(value));
}
JsonObject& JsonObject::number(std::string_view key, std::optional<double> value) {
  return json(key, value ? json_number(*value, digits_) : "null");
}
JsonObject& JsonObject::json(std::string_view key, std::string_view value) {
  (text_ += (text_.size() > 1 ? "," : "") + quote_json(key) + ":") += value;
  return *this;
}

}  // namespace bv

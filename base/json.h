// JSON that people edit (models/*.json, config.json) as a small tree. The reader bounds size and
// nesting and refuses duplicate keys, so that no file can make it crash, hang or guess.
#pragma once
#include <array>
#include <cstdint>
#include <exception>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace bv {

struct JsonValue {
  enum class Kind { null, boolean, number, text, list, object };
  Kind kind = Kind::null;
  std::string text;  // of a boolean, number or text; whole numbers have no point or exponent
  std::vector<JsonValue> items;
  std::vector<std::pair<std::string, JsonValue>> members;  // in the file's order
  const JsonValue* find(std::string_view key) const;       // a member; null if there is none
};
std::string_view name_of(JsonValue::Kind);

// Throws UserError naming `path`, line and column unless `text` is one object.
JsonValue parse_json_object(std::string_view text, const std::string& path);

// The members of an object by name. A mistake is a UserError that names the file and the member.
class JsonReader {
 public:
  // Both outlive the reader. path: the file, which messages begin with.
  JsonReader(const JsonValue& object, const std::string& path) : object_(object), path_(path) {}

  const std::string& text(const std::string& key) { return need(key, JsonValue::Kind::text).text; }
  double number(const std::string& key, double min, double max) {
    return checked(key, need(key, JsonValue::Kind::number), min, max);
  }
  int whole(const std::string& key, int max);  // from 1
  template <size_t n>                          // form: "must be 3 numbers"
  std::array<double, n> numbers(const std::string& key, const char* form, double min, double max) {
    const JsonValue& list = need(key, JsonValue::Kind::list);
    if (list.items.size() != n) fail(key, form);
    std::array<double, n> values;
    for (size_t i = 0; i < n; ++i) values[i] = checked(key, list.items[i], min, max);
    return values;
  }
  bool flag(const std::string& key);                // false where it is missing
  const JsonValue* object(const std::string& key);  // null where it is missing
  void refuse_unknown() const;                      // a member that nobody asked for

  [[noreturn]] void fail(const std::string& reason) const;
  [[noreturn]] void fail(const std::string& key, const std::string& reason) const;

 private:
  const JsonValue& object_;
  const std::string& path_;
  std::set<std::string> known_;

  const JsonValue* find(const std::string& key, JsonValue::Kind);
  const JsonValue& need(const std::string& key, JsonValue::Kind);
  void check_kind(const std::string& key, const JsonValue&, JsonValue::Kind) const;
  double checked(const std::string& key, const JsonValue&, double min, double max) const;
};

// The parts of a JSON text in their order, for what is too large or too suspect for a tree. One
// that returns false ends the reading.
class JsonEvents {
 public:
  virtual bool null() = 0;
  virtual bool boolean(bool) = 0;
  virtual bool number_integer(int64_t) = 0;  // a negative one
  virtual bool number_unsigned(uint64_t) = 0;
  virtual bool number_float(double, const std::string& text) = 0;
  virtual bool string(std::string&) = 0;
  virtual bool start_object(size_t) = 0;  // the size isn't known yet
  virtual bool key(std::string&) = 0;
  virtual bool end_object() = 0;
  virtual bool start_array(size_t) = 0;
  virtual bool end_array() = 0;
  // The text ends being JSON at this byte; the reading is over.
  virtual void invalid(size_t position, const std::exception& why) = 0;

  // The parser's names for what text cannot hold, and for invalid().
  template <class Bytes>
  bool binary(Bytes&) {
    return false;
  }
  template <class Error>
  bool parse_error(size_t position, const std::string&, const Error& why) {
    invalid(position, why);
    return false;
  }

 protected:
  ~JsonEvents() = default;
};
// Returns whether the whole text was read.
bool read_json(std::string_view text, JsonEvents& events);

std::string quote_json(std::string_view text);
// A number in JSON, null if it is not finite; `digits` as in format_number.
std::string json_number(double value, int digits = 0);

// One JSON object, written member by member.
class JsonObject {
 public:
  explicit JsonObject(int digits = 0) : digits_(digits) {}  // of its numbers, as in format_number
  JsonObject& text(std::string_view key, std::string_view value);
  JsonObject& whole(std::string_view key, int64_t value);
  JsonObject& number(std::string_view key, std::optional<double> value);  // null if it is none
  JsonObject& json(std::string_view key, std::string_view value);         // a value in JSON
  std::string finish() { return text_ + "}"; }

 private:
  int digits_;
  std::string text_ = "{";
};

}  // namespace bv

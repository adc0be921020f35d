// JSON that people edit (models/*.json, config.json) as a small tree. The reader bounds size and
// nesting and refuses duplicate keys, so that no file can make it crash, hang or guess.
#pragma once
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
};
std::string_view name_of(JsonValue::Kind);

// Throws UserError naming `path`, line and column unless `text` is one object.
JsonValue parse_json_object(std::string_view text, const std::string& path);

std::string quote_json(std::string_view text);
// A number in JSON, null if it is not finite; `digits` as in format_number.
std::string json_number(double value, int digits = 0);

}  // namespace bv

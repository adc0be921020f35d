// Values of options as text and as JSON.
#pragma once
#include <string>
#include <vector>

#include "base/json.h"
#include "engine/options/option_table.h"

namespace bv {

// An option's value as text: one item, or the items of a list.
using Items = std::vector<std::string>;
using Values = std::map<std::string, Items, std::less<>>;  // by name

// Sets the option to the items' value. Throws UserError: `subject` ("--lr abc"), then the reason.
void assign(Options&, const OptionRow&, const Items&, const std::string& subject);
// The option's value, as assign takes it; no items if it is not set.
Items items_of(const Options&, const OptionRow&);
// The built-in default as text; empty if there is none.
std::string default_of(const OptionRow&);

// What a JSON object of options is: a recipe may contain some of them only.
enum class OptionFile : uint8_t { config, recipe, named_recipe };
// The values in it; `where` names it in messages. Throws UserError naming the key.
Values values_from_json(const JsonValue& object, const std::string& where, OptionFile);
std::string value_to_json(const OptionRow&, const Items&);

// --save-every 2 (epochs) or 500steps.
struct SaveEvery {
  int64_t count;
  bool steps;
};
std::optional<SaveEvery> parse_save_every(std::string_view text);

// --partition 6,6: how many blocks each part has.
std::optional<std::vector<int>> parse_blocks(std::string_view text);

// --lr-after 600:1e-6
struct LrAfter {
  int64_t epoch;
  double lr;
};
std::optional<LrAfter> parse_lr_after(std::string_view text);

}  // namespace bv

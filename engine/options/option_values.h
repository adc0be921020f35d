// Option values as text and as JSON.
#pragma once
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/json_fwd.h"
#include "engine/options/option_table.h"

namespace bv {

using Values = std::map<std::string, Items, std::less<>>;  // by name

// Throws UserError if the items are not a value of the option. Message: `subject` ("--lr abc") and
// the reason.
void check(const OptionRow&, const Items&, const std::string& subject);

template <class S>
void* place_in(S& options, const OptionRow& row) {
  if (row.field.defaults != defaults_of<S>) throw std::logic_error("another command's option");
  return row.field.in(&options);
}
// Checks the items and sets the option to their value.
template <class S>
void assign(S& options, const OptionRow& row, const Items& items, const std::string& subject) {
  void* const value = place_in(options, row);
  check(row, items, subject);
  row.field.type->set(value, row, items);
}
// The option's value in the form that assign() takes; no items if it is not set.
template <class S>
Items items_of(const S& options, const OptionRow& row) {
  return row.field.type->items(place_in(const_cast<S&>(options), row));
}
// Resets the option to its built-in default.
void unset(Options&, std::string_view name);
// The built-in default as text; empty if there is none.
std::string default_of(const OptionRow&);

// Kinds of JSON files with options; a recipe may contain only some of the options.
enum class OptionFile : uint8_t { config, recipe, named_recipe };
// The option values in a JSON object; `where` names it in messages. Throws UserError naming the
// key.
Values values_from_json(const Json& object, const std::string& where, OptionFile);
Json value_to_json(const OptionRow&, const Items&);

}  // namespace bv

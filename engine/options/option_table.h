// The table of options: names, types, allowed values, allowed places, help. It drives the command
// line, config files, recipes, config.json, --help and docs/options.md.
#pragma once
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/options/options.h"

namespace bv {

// The bounds of a number; an open bound is excluded.
struct Range {
  double min = -std::numeric_limits<double>::max(), max = std::numeric_limits<double>::max();
  bool min_open = false, max_open = false;
};
constexpr Range between(double min, double max) { return {.min = min, .max = max}; }

// The sources besides the command line that may set an option, and how its value is kept.
struct Uses {
  bool recipe = true;             // in a recipe
  bool resume = false;            // with --resume
  bool stored = true;             // in config.json
  bool named = recipe;            // in a named recipe, models/recipes/NAME.json
  bool config = true;             // in a --config file
  bool kept = stored && !resume;  // in checkpoints
  bool path = false;              // is a path, and may be empty
  bool absolute = false;  // stored as an absolute path: a run may be resumed from another folder
};

struct OptionRow;
// An option's value as text: one item, or several for a list.
using Items = std::vector<std::string>;

enum class JsonForm : uint8_t { boolean, number, text };

// The type of an option: its form in JSON, and its conversion to text and back.
struct ValueType {
  JsonForm form;                                                       // of each item
  bool list = false;                                                   // has several items
  bool or_number = false;                                              // takes a single number, too
  void (*set)(void* value, const OptionRow&, const Items&) = nullptr;  // throws UserError
  void (*check)(const OptionRow&, const Items&) = nullptr;             // throws UserError
  Items (*items)(const void* value) = nullptr;                         // empty: not set
  void (*copy)(void* to, const void* from) = nullptr;
  std::vector<std::string> (*texts)() = nullptr;  // a choice's words
};

template <class T>
struct TypeOf {  // in option_values.cpp, for each type that options have
  static const ValueType value;
};

// A member of an options struct.
struct Field {
  const ValueType* type;
  void* (*in)(void* options);
  const void* (*defaults)();  // a struct of its type with all defaults
};

template <class S>
const void* defaults_of() {
  static const S defaults;
  return &defaults;
}
template <auto member, class S>
void* member_in(void* options) {
  return &(static_cast<S*>(options)->*member);
}
template <class S, class T>
S struct_of(T S::*);
template <class S, class T>
T type_of(T S::*);
template <auto member, class S = decltype(struct_of(member))>
inline constexpr Field field = {&TypeOf<decltype(type_of(member))>::value, member_in<member, S>,
                                defaults_of<S>};

struct OptionRow {
  std::string_view name;     // in JSON; on the command line --name with dashes for underscores
  std::string_view metavar;  // "N"; empty for a flag or a choice
  Field field;
  std::string_view help;
  Range range = {};
  Uses uses = {};
  char letter = 0;          // -n
  bool positional = false;  // no --; several values for a list; metavar [X]: optional

  bool is_flag() const { return field.type->form == JsonForm::boolean; }
  bool is_list() const { return field.type->list; }
  bool is_choice() const { return field.type->texts != nullptr; }
  std::string values() const;  // shown after the flag in --help: the metavar, or a|b|c
  std::string flag() const;    // --image-size; or a positional argument's metavar
};

// A row for a positional argument of a command.
constexpr OptionRow positional(std::string_view name, std::string_view metavar, Field field,
                               std::string_view help) {
  return {.name = name, .metavar = metavar, .field = field, .help = help, .positional = true};
}

struct OptionGroup {
  std::string_view title;
  std::span<const OptionRow> rows;
};
std::span<const OptionGroup> option_groups();         // training options
const OptionRow* find_option(std::string_view name);  // null if there is none
std::vector<std::string> option_names();

// Index of a choice's word among `texts`. Throws UserError.
size_t place_of(const OptionRow&, const Items&, const std::vector<std::string>& texts);

template <WithWords E>
std::vector<std::string> texts_of(E) {
  constexpr auto texts = words(E{});
  return {texts.begin(), texts.end()};
}
template <WithWords E>
std::vector<std::string> texts_of(std::optional<E>) {
  std::vector<std::string> texts = texts_of(E{});
  if (!unset_word(E{}).empty()) texts.emplace(texts.begin(), unset_word(E{}));
  return texts;
}
template <class T>
concept Choice = requires(T value) {
  texts_of(value);
};

struct ChoiceText {
  template <WithWords E>
  static void read(E& value, const OptionRow& row, const Items& items) {
    value = static_cast<E>(place_of(row, items, texts_of(E{})));
  }
  template <WithWords E>
  static void read(std::optional<E>& value, const OptionRow& row, const Items& items) {
    place_of(row, items, texts_of(value));
    value.reset();
    if (items[0] != unset_word(E{})) read(value.emplace(), row, items);
  }
  template <WithWords E>
  static Items items(E value) {
    return {word_of(value)};
  }
  template <WithWords E>
  static Items items(std::optional<E> value) {
    return word_of(value).empty() ? Items{} : Items{word_of(value)};
  }
};

// The type whose values Text::read and Text::items convert.
template <class T, class Text>
constexpr ValueType value_type(JsonForm form) {
  return {.form = form,
          .set = [](void* value, const OptionRow& row,
                    const Items& items) { Text::read(*static_cast<T*>(value), row, items); },
          .check =
              [](const OptionRow& row, const Items& items) {
                T value{};
                Text::read(value, row, items);
              },
          .items = [](const void* value) { return Text::items(*static_cast<const T*>(value)); },
          .copy = [](void* to,
                     const void* from) { *static_cast<T*>(to) = *static_cast<const T*>(from); }};
}

template <Choice T>
struct TypeOf<T> {
  static constexpr ValueType value = [] {
    ValueType type = value_type<T, ChoiceText>(JsonForm::text);
    type.texts = [] { return texts_of(T{}); };
    return type;
  }();
};

}  // namespace bv

#include "engine/options/option_values.h"

#include <algorithm>
#include <concepts>
#include <set>

#include "base/error.h"
#include "base/json_list.h"
#include "base/text.h"
#include "engine/options/foreign_names.h"

namespace bv {

namespace {

std::string range_text(const Range& range, bool whole) {
  const auto number = [whole](double value) {
    return whole ? std::to_string(static_cast<int64_t>(value)) : format_number(value);
  };
  std::string text = "must be ";
  text += (range.min_open ? "more than " : "at least ") + number(range.min);
  if (range.max < std::numeric_limits<double>::max())
    text += (range.max_open ? " and less than " : " and at most ") + number(range.max);
  return text;
}

// assign adds the subject in front of the reason.
[[noreturn]] void refuse(const std::string& reason) { throw UserError(reason); }

double checked(double value, const Range& range, bool whole) {
  const bool low = range.min_open ? value <= range.min : value < range.min;
  const bool high = range.max_open ? value >= range.max : value > range.max;
  if (low || high) refuse(range_text(range, whole));
  return value;
}

double to_number(const std::string& item, const Range& range) {
  const auto value = parse_number(item);
  if (!value) refuse("is not a number");
  return checked(*value, range, false);
}

// Converts a row's items to the type of its member.
struct Convert {
  const OptionRow& row;
  const Items& items;

  const std::string& item() const {
    if (items.size() != 1) refuse("must be one value");
    return items[0];
  }
  void operator()(std::string& out) const {
    const std::vector<std::string> choices = split(row.metavar, '|');
    if (row.name == "save_every") {
      if (!parse_save_every(item())) refuse("must be a number of epochs, or like 500steps");
    } else if (row.name == "partition") {
      if (std::ranges::find(choices, item()) == choices.end() && !parse_blocks(item()))
        refuse("must be uniform, balanced, cost or the blocks of each part, like 6,6");
    } else if (row.name == "lr_after") {
      if (!item().empty() && !parse_lr_after(item()))
        refuse("must be a number of epochs and a learning rate, like 600:1e-6");
    } else if (row.is_choice() && std::ranges::find(choices, item()) == choices.end()) {
      std::string advice = suggestion(item(), choices);
      if (advice.empty() && row.name == "auto_augment") advice = advice_for_foreign_policy(item());
      refuse("must be one of " + join(choices, ", ") + advice);
    }
    constexpr std::string_view may_be_empty[] = {"data", "weights", "val", "lr_after"};
    if (item().empty() && std::ranges::find(may_be_empty, row.name) == std::end(may_be_empty))
      refuse("must not be empty");
    if (item().find('\0') != std::string::npos) refuse("contains a zero byte");
    out = item();
  }
  void operator()(bool& out) const {
    if (item() != "true" && item() != "false") refuse("must be true or false");
    out = item() == "true";
  }
  void operator()(uint64_t& out) const {
    const auto value = parse_unsigned(item());
    if (!value) refuse("must be a whole number from 0 to 18446744073709551615");
    out = *value;
  }
  void operator()(double& out) const { out = to_number(item(), row.range); }
  void operator()(std::vector<std::string>& out) const {
    if (row.positional) {
      for (const std::string& word : items)
        if (word.empty()) refuse("must not be empty");
      out = items;
      return;
    }
    if (items.size() == 1) {
      const auto number = parse_integer(items[0]);
      if (!number || *number < 2 || *number > 1000000)
        refuse("must be a number of classes, at least 2, or their names: a,b,c");
      out = {std::to_string(*number)};
      return;
    }
    const std::set<std::string> different(items.begin(), items.end());
    if (different.contains("")) refuse("has a class without a name");
    if (different.size() != items.size()) refuse("names a class twice");
    out = items;
  }
  void operator()(std::vector<int>& out) const {
    out.clear();
    for (const std::string& one : items) {
      const auto value = parse_integer(one);
      if (!value) refuse("must be whole numbers");
      out.push_back(static_cast<int>(checked(static_cast<double>(*value), row.range, true)));
    }
  }
  // Of --color-jitter: one number for the first three, or three or four.
  void operator()(std::array<double, 4>& out) const {
    if (items.size() != 1 && items.size() != 3 && items.size() != 4)
      refuse("must be one number, three or four");
    for (size_t i = 0; i < 3; ++i) out[i] = to_number(items[items.size() == 1 ? 0 : i], row.range);
    out[3] = items.size() == 4 ? to_number(items[3], row.range) : 0;
  }
  template <size_t n>
  void operator()(std::array<double, n>& out) const {
    if (items.size() != n) refuse("must be " + std::to_string(n) + " numbers");
    for (size_t i = 0; i < n; ++i) out[i] = to_number(items[i], row.range);
  }
  template <std::signed_integral T>
  void operator()(T& out) const {
    const auto value = parse_integer(item());
    if (!value) refuse(parse_number(item()) ? "is not a whole number" : "is not a number");
    Range range = row.range;
    range.max = std::min(range.max, static_cast<double>(std::numeric_limits<T>::max()));
    checked(static_cast<double>(*value), range, true);
    out = static_cast<T>(*value);
  }
  template <class T>
  void operator()(std::optional<T>& out) const {
    T value{};
    (*this)(value);
    out = value;
  }
};

struct ToItems {
  Items operator()(const std::string& value) const { return {value}; }
  Items operator()(bool value) const { return {value ? "true" : "false"}; }
  Items operator()(double value) const { return {format_number(value)}; }
  Items operator()(const std::vector<std::string>& value) const { return value; }
  Items operator()(const std::vector<int>& values) const {
    Items items;
    for (const int value : values) items.push_back(std::to_string(value));
    return items;
  }
  template <size_t n>
  Items operator()(const std::array<double, n>& values) const {
    Items items;
    for (const double value : values) items.push_back(format_number(value));
    return items;
  }
  template <std::integral T>
  Items operator()(T value) const {
    return {std::to_string(value)};
  }
  template <class T>
  Items operator()(const std::optional<T>& value) const {
    return value ? (*this)(*value) : Items{};
  }
};

Items items_from_json(const JsonValue& value, const OptionRow& row, const std::string& subject) {
  using Kind = JsonValue::Kind;
  const auto expect = [&](bool fits, const char* what) {
    if (!fits) throw UserError(subject + ": must be " + what);
  };
  if (row.is_list()) {
    if ((row.name == "classes" || row.name == "color_jitter") && value.kind == Kind::number)
      return {value.text};
    expect(value.kind == Kind::list, "a list");
    Items items;
    const Kind kind = row.name == "classes" ? Kind::text : Kind::number;
    for (const JsonValue& item : value.items) {
      expect(item.kind == kind, kind == Kind::text ? "a list of names" : "a list of numbers");
      items.push_back(item.text);
    }
    return items;
  }
  if (row.is_flag()) {
    expect(value.kind == Kind::boolean, "true or false");
  } else if (row.is_text()) {
    const bool count = row.name == "save_every" && value.kind == Kind::number;
    expect(count || value.kind == Kind::text, "text in quotes");
  } else {
    expect(value.kind == Kind::number, "a number");
  }
  return {value.text};
}

bool may_contain(OptionFile file, const OptionRow& row) {
  if (file == OptionFile::config) return row.name != "resume" && row.name != "recipe";
  return file == OptionFile::recipe ? row.uses.recipe : row.uses.named;
}

}  // namespace

Options::Options() = default;
Options::Options(const Options&) = default;
Options::Options(Options&&) noexcept = default;
Options& Options::operator=(const Options&) = default;
Options& Options::operator=(Options&&) noexcept = default;
Options::~Options() = default;

void assign(Options& options, const OptionRow& row, const Items& items,
            const std::string& subject) {
  try {
    std::visit([&](auto member) { Convert{row, items}(options.*member); }, row.member);
  } catch (const UserError& reason) {
    throw UserError(subject + ": " + reason.what());
  }
}

Items items_of(const Options& options, const OptionRow& row) {
  return std::visit([&](auto member) { return ToItems{}(options.*member); }, row.member);
}

std::string default_of(const OptionRow& row) {
  if (row.is_flag()) return "";
  return join(items_of(Options{}, row), ",");
}

Values values_from_json(const JsonValue& object, const std::string& where, OptionFile file) {
  Values values;
  Options scratch;
  for (const auto& [key, value] : object.members) {
    if (value.kind == JsonValue::Kind::object)
      throw UserError(where + ": '" + printable(key) +
                      "' is an object, in which no option is looked for; put them beside it");
    const OptionRow* row = find_option(key);
    if (!row)
      throw UserError(where + ": unknown key '" + printable(key) + "'" +
                      suggestion(key, option_names()));
    if (!may_contain(file, *row))
      throw UserError(where + ": '" + key + "' can't be part of a " +
                      (file == OptionFile::config ? "config" : "recipe"));
    if (value.kind == JsonValue::Kind::null) continue;  // not set
    const std::string text = value.text.empty() ? "" : " " + printable(value.text);
    const std::string subject = where + ": '" + key + "'" + text;
    const Items items = items_from_json(value, *row, subject);
    assign(scratch, *row, items, subject);
    values.emplace(key, items);
  }
  return values;
}

std::string value_to_json(const OptionRow& row, const Items& items) {
  if (items.empty()) return row.name == "classes" ? "[]" : "null";
  const bool names = row.name == "classes" && items.size() > 1;
  const auto item_text = [&](const std::string& item) {
    return row.is_text() || names ? quote_json(item) : item;
  };
  if (!row.is_list() || (row.name == "classes" && !names)) return item_text(items[0]);
  return json_list(items, item_text, ", ");
}

std::optional<SaveEvery> parse_save_every(std::string_view text) {
  const bool steps = text.ends_with("steps");
  if (steps) text.remove_suffix(std::string_view("steps").size());
  const auto count = parse_integer(text);
  if (!count || *count < 1) return {};
  return SaveEvery{.count = *count, .steps = steps};
}

std::optional<std::vector<int>> parse_blocks(std::string_view text) {
  std::vector<int> blocks;
  for (const std::string& word : split(text, ',')) {
    const auto count = parse_integer(word);
    if (!count || *count < 1 || *count > 1000) return {};
    blocks.push_back(static_cast<int>(*count));
  }
  return blocks;
}

std::optional<LrAfter> parse_lr_after(std::string_view text) {
  const size_t colon = text.find(':');
  if (colon == text.npos) return {};
  const auto epoch = parse_integer(text.substr(0, colon));
  const auto lr = parse_number(text.substr(colon + 1));
  if (!epoch || *epoch < 1 || !lr || !(*lr >= 0)) return {};
  return LrAfter{.epoch = *epoch, .lr = *lr};
}

}  // namespace bv

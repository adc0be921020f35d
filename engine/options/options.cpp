// Options to and from text, each by the type of its member.
#include "engine/options/options.h"

#include <algorithm>
#include <set>
#include <type_traits>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/options/option_table.h"

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

// The reason why an item is no value of the row is thrown as UserError; assign adds the subject.
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

template <class T>
T to_whole_number(const std::string& item, Range range) {
  const auto value = parse_integer(item);
  if (!value) refuse(parse_number(item) ? "is not a whole number" : "is not a number");
  range.max = std::min(range.max, static_cast<double>(std::numeric_limits<T>::max()));
  checked(static_cast<double>(*value), range, true);
  return static_cast<T>(*value);
}

std::string to_choice(const std::string& item, const OptionRow& row) {
  const std::vector<std::string> choices = split(row.metavar, '|');
  if (std::ranges::find(choices, item) == choices.end())
    refuse("is none of " + join(choices, ", ") + suggestion(item, choices));
  return item;
}

std::string to_text(const std::string& item, const OptionRow& row) {
  if (row.name == "save_every") {
    if (!parse_save_every(item)) refuse("must be a number of epochs, or like 500steps");
  } else if (row.is_choice()) {
    return to_choice(item, row);
  }
  if (item.empty() && row.name != "data" && row.name != "weights") refuse("must not be empty");
  if (item.find('\0') != item.npos) refuse("holds a zero byte");
  return item;
}

std::vector<std::string> to_classes(const Items& items) {
  if (items.size() == 1) {
    const auto number = parse_integer(items[0]);
    if (number && *number >= 2 && *number <= 1000000) return {std::to_string(*number)};
    refuse("must be a number of classes from 2 on, or their names: a,b,c");
  }
  const std::set<std::string> different(items.begin(), items.end());
  if (different.contains("")) refuse("has a class without a name");
  if (different.size() != items.size()) refuse("names a class twice");
  return items;
}

template <size_t n>
std::array<double, n> to_numbers(const Items& items, const Range& range) {
  if (items.size() != n) refuse("must be " + std::to_string(n) + " numbers");
  std::array<double, n> values;
  for (size_t i = 0; i < n; ++i) values[i] = to_number(items[i], range);
  return values;
}

struct Assign {
  Options& options;
  const OptionRow& row;
  const Items& items;

  const std::string& item() const {
    if (items.size() != 1) refuse("must be one value");
    return items[0];
  }
  void operator()(Member<std::string> m) const { options.*m = to_text(item(), row); }
  void operator()(Member<bool> m) const {
    if (item() != "true" && item() != "false") refuse("must be true or false");
    options.*m = item() == "true";
  }
  void operator()(Member<uint64_t> m) const {
    const auto value = parse_unsigned(item());
    if (!value) refuse("must be a whole number from 0 to 18446744073709551615");
    options.*m = *value;
  }
  void operator()(Member<double> m) const { options.*m = to_number(item(), row.range); }
  void operator()(Member<std::vector<std::string>> m) const { options.*m = to_classes(items); }
  template <size_t n>
  void operator()(Member<std::array<double, n>> m) const {
    options.*m = to_numbers<n>(items, row.range);
  }
  template <size_t n>
  void operator()(Member<std::optional<std::array<double, n>>> m) const {
    options.*m = to_numbers<n>(items, row.range);
  }
  template <class T>
  requires std::is_integral_v<T>
  void operator()(Member<T> m) const { options.*m = to_whole_number<T>(item(), row.range); }
  template <class T>
  requires std::is_integral_v<T>
  void operator()(Member<std::optional<T>> m) const {
    options.*m = to_whole_number<T>(item(), row.range);
  }
};

struct ToItems {
  Items operator()(const std::string& value) const { return {value}; }
  Items operator()(bool value) const { return {value ? "true" : "false"}; }
  Items operator()(double value) const { return {format_number(value)}; }
  Items operator()(const std::vector<std::string>& value) const { return value; }
  template <size_t n>
  Items operator()(const std::array<double, n>& values) const {
    Items items;
    for (const double value : values) items.push_back(format_number(value));
    return items;
  }
  template <class T>
  requires std::is_integral_v<T> Items operator()(T value) const { return {std::to_string(value)}; }
  template <class T>
  Items operator()(const std::optional<T>& value) const {
    return value ? (*this)(*value) : Items{};
  }
};

}  // namespace

void assign(Options& options, const OptionRow& row, const Items& items,
            const std::string& subject) {
  try {
    std::visit(Assign{options, row, items}, row.member);
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

std::optional<SaveEvery> parse_save_every(std::string_view text) {
  const bool steps = text.ends_with("steps");
  if (steps) text.remove_suffix(std::string_view("steps").size());
  const auto count = parse_integer(text);
  if (!count || *count < 1) return {};
  return SaveEvery{.count = *count, .steps = steps};
}

}  // namespace bv

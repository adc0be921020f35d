#include "engine/options/option_values.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <concepts>
#include <cstdlib>
#include <regex>
#include <set>

#include "base/error.h"
#include "base/json.h"
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

// assign() puts the subject in front of the reason.
[[noreturn]] void refuse(const std::string& reason) { throw UserError(reason); }

double checked(double value, const Range& range, bool whole) {
  const bool low = range.min_open ? value <= range.min : value < range.min;
  const bool high = range.max_open ? value >= range.max : value > range.max;
  if (low || high) refuse(range_text(range, whole));
  return value;
}

[[noreturn]] void refuse_number(const OptionRow& row, const std::string& item, bool whole) {
  constexpr std::string_view minus = "\xe2\x88\x92", dash = "\xe2\x80\x93";  // of word processors
  for (const std::string_view other : {minus, dash})
    if (const size_t at = item.find(other); at != item.npos)
      refuse("has the minus of a word processor; type " +
             std::string(item).replace(at, other.size(), "-"));
  char* end = nullptr;
  errno = 0;
  const double far = std::strtod(item.c_str(), &end);
  if (errno == ERANGE && *end == 0)
    refuse(std::string("is too ") + (std::abs(far) > 1 ? "large" : "small") + " a number");
  const std::string unit = unit_of(row.name);
  std::string example = row.is_list() ? "" : default_of(row);
  if (const std::optional<double> meant = number_meant(row.name, item, whole);
      meant && *meant >= row.range.min && *meant <= row.range.max)
    example = format_number(whole ? std::floor(*meant) : *meant);
  refuse(std::string("is not a ") + (whole && parse_number(item) ? "whole " : "") + "number" +
         (unit.empty() ? "" : " of " + unit) + (example.empty() ? "" : ", like " + example));
}

double to_number(const OptionRow& row, const std::string& item) {
  const auto value = parse_number(item);
  if (!value) refuse_number(row, item, false);
  return checked(*value, row.range, false);
}

const std::string& one(const Items& items) {
  if (items.size() != 1) refuse("must be one value");
  return items[0];
}

}  // namespace

size_t place_of(const OptionRow& row, const Items& items, const std::vector<std::string>& texts) {
  const auto found = std::ranges::find(texts, one(items));
  if (found != texts.end()) return static_cast<size_t>(found - texts.begin());
  const std::string elsewhere = advice_for_foreign_value(row.name, items[0]);
  refuse("must be one of " + join(texts, ", ") +
         (elsewhere.empty() ? suggestion(items[0], texts) : elsewhere));
}

namespace {

template <class T>
concept HasForm = requires {
  T::form;
};

// Conversions of the option types: items to values and back.
struct PlainText : ChoiceText {
  using ChoiceText::items, ChoiceText::read;

  static void read(std::string& out, const OptionRow& row, const Items& in) {
    if (one(in).empty() && !row.uses.path) refuse("must not be empty");
    if (in[0].find('\0') != std::string::npos) refuse("contains a zero byte");
    out = in[0];
  }
  static Items items(const std::string& value) { return {value}; }

  static void read(bool& out, const OptionRow&, const Items& in) {
    if (one(in) != "true" && in[0] != "false") refuse("must be true or false");
    out = in[0] == "true";
  }
  static Items items(bool value) { return {value ? "true" : "false"}; }

  static void read(uint64_t& out, const OptionRow&, const Items& in) {
    const auto value = parse_unsigned(one(in));
    if (!value) refuse("must be a whole number from 0 to 18446744073709551615");
    out = *value;
  }
  template <std::signed_integral T>
  static void read(T& out, const OptionRow& row, const Items& in) {
    const auto value = parse_integer(one(in));
    if (!value) refuse_number(row, in[0], true);
    Range range = row.range;
    range.max = std::min(range.max, static_cast<double>(std::numeric_limits<T>::max()));
    checked(static_cast<double>(*value), range, true);
    out = static_cast<T>(*value);
  }
  template <std::integral T>
  static Items items(T value) {
    return {std::to_string(value)};
  }

  static void read(double& out, const OptionRow& row, const Items& in) {
    out = to_number(row, one(in));
  }
  static Items items(double value) { return {format_number(value)}; }

  // Positional arguments, class names, or the number of classes.
  static void read(std::vector<std::string>& out, const OptionRow& row, const Items& in) {
    const std::set<std::string> different(in.begin(), in.end());
    if (row.positional) {
      if (different.contains("")) refuse("must not be empty");
      out = in;
    } else if (in.size() == 1) {
      const auto number = parse_integer(in[0]);
      if (!number || *number < 2 || *number > 1000000)
        refuse("must be a number of classes, at least 2, or their names: a,b,c");
      out = {std::to_string(*number)};
    } else {
      if (different.contains("")) refuse("has a class without a name");
      if (different.size() != in.size()) refuse("names a class twice");
      out = in;
    }
  }
  static Items items(const std::vector<std::string>& value) { return value; }

  static void read(std::vector<int>& out, const OptionRow& row, const Items& in) {
    out.clear();
    for (const std::string& item : in) {
      const auto value = parse_integer(item);
      if (!value) refuse("must be whole numbers");
      out.push_back(static_cast<int>(checked(static_cast<double>(*value), row.range, true)));
    }
  }
  static Items items(const std::vector<int>& values) {
    Items items;
    for (const int value : values) items.push_back(std::to_string(value));
    return items;
  }

  template <size_t n>
  static void read(std::array<double, n>& out, const OptionRow& row, const Items& in) {
    if (in.size() != n) refuse("must be " + std::to_string(n) + " numbers");
    const auto of_bytes = [](const std::string& item) {
      const double value = parse_number(item).value_or(0);
      return value >= 2 && value <= 255;
    };
    if ((row.name == "mean" || row.name == "std") && std::ranges::any_of(in, of_bytes))
      refuse(range_text(row.range, false) + "; divide values of 0-255 by 255");
    for (size_t i = 0; i < n; ++i) out[i] = to_number(row, in[i]);
  }
  // --color-jitter takes three or four numbers, or a single one for the first three.
  static void read(std::array<double, 4>& out, const OptionRow& row, const Items& in) {
    if (in.size() != 1 && in.size() != 3 && in.size() != 4)
      refuse("must be one number, three or four");
    for (size_t i = 0; i < 3; ++i) out[i] = to_number(row, in[in.size() == 1 ? 0 : i]);
    out[3] = in.size() == 4 ? to_number(row, in[3]) : 0;
  }
  template <size_t n>
  static Items items(const std::array<double, n>& values) {
    Items items;
    for (const double value : values) items.push_back(format_number(value));
    return items;
  }

  template <HasForm T>
  static void read(T& out, const OptionRow&, const Items& in) {
    const std::optional<T> value = T::parse(one(in));
    if (!value) refuse(T::form);
    out = *value;
  }
  template <HasForm T>
  static Items items(const T& value) {
    return {value.text};
  }

  template <class T>
  static void read(std::optional<T>& out, const OptionRow& row, const Items& in) {
    if constexpr (HasForm<T>)
      if (one(in).empty()) return out.reset();
    read(out.emplace(), row, in);
  }
  template <class T>
  static Items items(const std::optional<T>& value) {
    if (value) return items(*value);
    return HasForm<T> ? Items{""} : Items{};
  }
};

template <class T>
constexpr bool is_text = std::is_same_v<T, std::string> || HasForm<T>;
template <class T>
constexpr bool is_text<std::optional<T>> = is_text<T>;
template <class T>
constexpr bool is_list = requires(T value) {
  value.data();
}
&&!is_text<T>;
template <class T>
constexpr bool is_list<std::optional<T>> = is_list<T>;

template <class T>
constexpr ValueType plain_type() {
  constexpr bool names = std::is_same_v<T, std::vector<std::string>>;
  ValueType type = value_type<T, PlainText>(is_text<T> || names       ? JsonForm::text
                                            : std::is_same_v<T, bool> ? JsonForm::boolean
                                                                      : JsonForm::number);
  type.list = is_list<T>;
  type.or_number = names || std::is_same_v<T, SaveEvery> || std::is_same_v<T, NodeCount> ||
                   std::is_same_v<T, std::array<double, 4>>;
  return type;
}

bool is_of(JsonForm form, const Json& value) {
  return form == JsonForm::boolean  ? value.is_boolean()
         : form == JsonForm::number ? value.is_number()
                                    : value.is_string();
}

Items items_from_json(const Json& value, const OptionRow& row, const std::string& subject) {
  const auto expect = [&](bool fits, const std::string& what) {
    if (!fits) throw UserError(subject + ": must be " + what);
  };
  const ValueType& type = *row.field.type;
  if (type.or_number && value.is_number()) return {scalar_text(value)};
  if (!type.list) {
    const bool quoted = value.is_string() && parse_number(value.get<std::string>());
    expect(is_of(type.form, value), type.form == JsonForm::boolean ? "true or false"
                                    : type.form == JsonForm::text  ? "text in quotes"
                                    : quoted                       ? "a number, without quotes"
                                                                   : "a number");
    return {scalar_text(value)};
  }
  expect(value.is_array(), "a list");
  Items items;
  for (const Json& item : value) {
    expect(is_of(type.form, item),
           type.form == JsonForm::text ? "a list of names" : "a list of numbers");
    items.push_back(scalar_text(item));
  }
  return items;
}

bool may_contain(OptionFile file, const Uses& uses) {
  return file == OptionFile::config   ? uses.config
         : file == OptionFile::recipe ? uses.recipe
                                      : uses.named;
}

// The advice for a flag of that name, with keys in place of flags.
std::string advice_for_key(const std::string& key) {
  static const std::regex flags("--([a-z][a-z-]*)");
  const std::string advice = advice_for_foreign("--" + key);
  if (advice.empty()) return suggestion(key, option_names());
  std::string text;
  auto last = advice.cbegin();
  for (std::sregex_iterator found(advice.begin(), advice.end(), flags), end; found != end;
       ++found) {
    std::string name = (*found)[1];
    std::ranges::replace(name, '-', '_');
    text.append(last, (*found)[0].first).append(find_option(name) ? name : found->str());
    last = (*found)[0].second;
  }
  return text.append(last, advice.cend());
}

}  // namespace

template <class T>
constinit const ValueType TypeOf<T>::value = plain_type<T>();
template <class... T>
struct Types {
  static constexpr const ValueType* all[] = {&TypeOf<T>::value...};
};
template struct Types<std::string, bool, int, int64_t, uint64_t, double, SaveEvery, NodeCount,
                      Partition, std::array<double, 2>, std::array<double, 4>,
                      std::vector<std::string>, std::vector<int>, std::optional<int>,
                      std::optional<int64_t>, std::optional<double>, std::optional<LrAfter>,
                      std::optional<std::array<double, 2>>, std::optional<std::array<double, 3>>>;

Options::Options() = default;
Options::Options(const Options&) = default;
Options::Options(Options&&) noexcept = default;
Options& Options::operator=(const Options&) = default;
Options& Options::operator=(Options&&) noexcept = default;
Options::~Options() = default;

void check(const OptionRow& row, const Items& items, const std::string& subject) {
  try {
    row.field.type->check(row, items);
  } catch (const UserError& reason) {
    throw UserError(subject + ": " + reason.what());
  }
}

void unset(Options& options, std::string_view name) {
  const OptionRow& row = *find_option(name);
  void* const fresh = row.field.in(const_cast<void*>(row.field.defaults()));
  row.field.type->copy(row.field.in(&options), fresh);
  options.sources.erase(std::string(name));
}

std::string default_of(const OptionRow& row) {
  if (row.is_flag()) return "";
  const void* const fresh = row.field.in(const_cast<void*>(row.field.defaults()));
  return join(row.field.type->items(fresh), ",");
}

Values values_from_json(const Json& object, const std::string& where, OptionFile file) {
  Values values;
  for (const auto& [key, value] : object.items()) {
    if (value.is_object())
      throw UserError(where + ": '" + printable(key) +
                      "' is an object, whose options are not read; move them out of it");
    const OptionRow* row = find_option(key);
    if (!row)
      throw UserError(where + ": unknown key '" + printable(key) + "'" + advice_for_key(key));
    if (!may_contain(file, row->uses))
      throw UserError(where + ": '" + key + "' can't be part of a " +
                      (file == OptionFile::config ? "config" : "recipe"));
    if (value.is_null()) continue;  // not set
    const std::string text = scalar_text(value);
    const std::string subject =
        where + ": '" + key + "'" + (text.empty() ? "" : " " + printable(text));
    const Items items = items_from_json(value, *row, subject);
    check(*row, items, subject);
    values.emplace(key, items);
  }
  return values;
}

Json value_to_json(const OptionRow& row, const Items& items) {
  const ValueType& type = *row.field.type;
  const bool names = type.list && type.form == JsonForm::text, count = names && items.size() == 1;
  if (items.empty()) return names ? Json::array() : Json();
  const auto json_of = [&](const std::string& item) {
    return type.form == JsonForm::text && !count ? Json(item) : Json::parse(item);
  };
  if (!type.list || count) return json_of(items[0]);
  Json list = Json::array();
  for (const std::string& item : items) list.push_back(json_of(item));
  return list;
}

std::optional<SaveEvery> SaveEvery::parse(const std::string& text) {
  struct Suffix {
    std::string_view word;
    Unit unit;
    int64_t factor;
  };
  constexpr Suffix suffixes[] = {{"steps", steps, 1},  // before "s"
                                 {"s", seconds, 1},
                                 {"min", seconds, 60},
                                 {"h", seconds, 3600},
                                 {"", epochs, 1}};
  const std::string_view number = text;
  const Suffix& suffix =
      *std::ranges::find_if(suffixes, [&](const Suffix& s) { return number.ends_with(s.word); });
  const auto count = parse_integer(number.substr(0, number.size() - suffix.word.size()));
  constexpr int64_t most = int64_t{1} << 40;  // in any unit; no product overflows
  if (!count || *count < 1 || (suffix.unit == seconds && *count > most)) return {};
  return SaveEvery{.text = text, .count = *count * suffix.factor, .unit = suffix.unit};
}

std::optional<NodeCount> NodeCount::parse(const std::string& text) {
  const std::vector<std::string> parts = split(text, ':');
  const auto least = parse_integer(parts.front()), most = parse_integer(parts.back());
  if (parts.size() > 2 || !least || !most || *least < 1 || *most < *least || *most > 1024)
    return {};
  return NodeCount{.text = text, .least = int(*least), .most = int(*most)};
}

std::optional<LrAfter> LrAfter::parse(const std::string& text) {
  const size_t colon = text.find(':');
  if (colon == text.npos) return {};
  const auto epoch = parse_integer(text.substr(0, colon));
  const auto lr = parse_number(text.substr(colon + 1));
  if (!epoch || *epoch < 1 || !lr || !(*lr >= 0)) return {};
  return LrAfter{.text = text, .epoch = *epoch, .lr = *lr};
}

std::optional<Partition> Partition::parse(const std::string& text) {
  for (const auto& [word, kind] :
       {std::pair{"uniform", uniform}, {"balanced", balanced}, {"cost", cost}})
    if (text == word) return Partition{.text = text, .kind = kind};
  Partition partition{.text = text, .kind = list};
  for (const std::string& word : split(text, ',')) {
    const auto count = parse_integer(word);
    if (!count || *count < 1 || *count > 1000) return {};
    partition.blocks.push_back(static_cast<int>(*count));
  }
  return partition;
}

}  // namespace bv

#include "base/text.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <numeric>
#include <utility>

namespace bv {

namespace {

template <class T>
std::optional<T> parse_whole(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  T value{};
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  if (result.ec != std::errc() || result.ptr != text.data() + text.size()) return {};
  return value;
}

// Edit distance in which swapping two neighbours is one edit (Damerau-Levenshtein with optimal
// string alignment). Keeps three rows of the table.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before, last(b.size() + 1), row = last;
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    before = std::exchange(last, row);
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      row[j + 1] = std::min({last[j] + (a[i] != b[j]), last[j + 1] + 1, row[j] + 1});
      if (i > 0 && j > 0 && a[i] == b[j - 1] && a[i - 1] == b[j])
        row[j + 1] = std::min(row[j + 1], before[j - 1] + 1);
    }
  }
  return row.back();
}

std::string digits_of(std::string_view word) {
  std::string digits;
  for (const char c : word)
    if (c >= '0' && c <= '9') digits += c;
  return digits;
}

// The length of the UTF-8 character that `text` begins with; 0 if it is invalid or not printable.
size_t printable_bytes(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return first >= 0x20 && first != 0x7f ? 1 : 0;
  const size_t bytes = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < bytes) return 0;
  for (size_t i = 1; i < bytes; ++i)
    if (byte(i) >> 6 != 2) return 0;
  return first == 0xc2 && byte(1) < 0xa0 ? 0 : bytes;  // U+0080 to U+009F control terminals, too
}

}  // namespace

std::string format_number(double value, int digits) {
  char buffer[64];
  const auto end = digits > 0 ? std::to_chars(buffer, buffer + sizeof buffer, value,
                                              std::chars_format::general, digits)
                              : std::to_chars(buffer, buffer + sizeof buffer, value);
  return {buffer, end.ptr};
}

std::optional<double> parse_number(std::string_view text) {
  const auto value = parse_whole<double>(text);
  return value && std::isfinite(*value) ? value : std::nullopt;
}
std::optional<int64_t> parse_integer(std::string_view text) { return parse_whole<int64_t>(text); }
std::optional<uint64_t> parse_unsigned(std::string_view text) {
  return parse_whole<uint64_t>(text);
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> items;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(separator, begin), text.size());
    items.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return items;
}

std::string join(std::span<const std::string> items, std::string_view separator) {
  std::string text;
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) text += separator;
    text += items[i];
  }
  return text;
}

std::string counted(int64_t number, std::string_view noun) {
  const bool hisses = noun.ends_with('s') || noun.ends_with("ch");
  const char* plural = number == 1 ? "" : hisses ? "es" : "s";
  return std::to_string(number) + " " + std::string(noun) + plural;
}

std::string nearest(std::string_view word, std::span<const std::string> known) {
  if (word.size() > 64 || known.empty()) return "";  // no option or model is that long
  return *std::ranges::min_element(
      known, {}, [&](const std::string& candidate) { return edit_distance(word, candidate); });
}

std::string suggestion(std::string_view word, std::span<const std::string> known,
                       std::string_view prefix) {
  std::string lower(word);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  const size_t slip = std::min<size_t>(2, lower.size() / 3);  // more edits are not a typing error
  const std::string best = nearest(lower, known);
  // If `word` is a prefix of one known name, or of several that all begin with the shortest one,
  // suggests the shortest: for cifar, cifar10 rather than cifar100.
  std::vector<std::string> longer;
  std::ranges::copy_if(known, std::back_inserter(longer),
                       [&](const std::string& name) { return name.starts_with(lower); });
  const auto shortest = std::ranges::min_element(longer, {}, &std::string::size);
  if (lower.size() > 3 && !longer.empty() &&
      std::ranges::all_of(longer, [&](const auto& name) { return name.starts_with(*shortest); }))
    return " (did you mean " + std::string(prefix) + *shortest + "?)";
  if (best.empty() || edit_distance(lower, best) > slip) return "";
  // Names that differ by one letter or by their number mean different things: gpu and cpu, resnet18
  // and resnet34.
  const bool other = lower != best && lower.size() < 4 && lower.size() == best.size();
  if (other || digits_of(lower) != digits_of(best)) return "";
  return " (did you mean " + std::string(prefix) + best + "?)";
}

std::string printable(std::string_view text, size_t max_length) {
  const bool cut = text.size() > max_length;
  text = text.substr(0, max_length);
  std::string result;
  while (!text.empty()) {
    const size_t bytes = printable_bytes(text);
    result += bytes > 0 ? text.substr(0, bytes) : "?";
    text.remove_prefix(std::max<size_t>(bytes, 1));
  }
  return cut ? result + "..." : result;
}

std::string wrap(std::string_view text, size_t first_column, size_t indent, size_t width) {
  std::string result;
  size_t column = first_column;
  for (const std::string& word : split(text, ' ')) {
    if (column > indent && column + 1 + word.size() > width) {
      result += '\n' + std::string(indent, ' ');
      column = indent;
    } else if (!result.empty()) {
      result += ' ';
      ++column;
    }
    result += word;
    column += word.size();
  }
  return result;
}

std::string own_command() {
  const char* command = std::getenv("BAREVISION_COMMAND");  // set by the script `launcher`
  if (command && *command) return shell_word(command);
  std::error_code error;
  const bool installed =
      std::filesystem::read_symlink("/proc/self/exe", error).filename() == "barevision";
  return installed ? "barevision" : "./launcher";
}

std::string as_called(std::string text) {
  constexpr std::string_view written = "./launcher";
  const std::string command = own_command();
  for (size_t at = 0; (at = text.find(written, at)) != text.npos;) {
    const bool path = at > 0 && (text[at - 1] == '.' || text[at - 1] == '/');  // ../launcher
    if (!path) text.replace(at, written.size(), command);
    at += path ? written.size() : command.size();
  }
  return text;
}

std::string shell_word(const std::string& word) {
  constexpr const char* plain =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./-+=:,@%";
  if (!word.empty() && word.find_first_not_of(plain) == word.npos) return word;
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? "'\\''" : std::string(1, c);
  return text + "'";
}

}  // namespace bv

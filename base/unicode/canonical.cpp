#include "base/unicode/canonical.h"

#include <wctype.h>

#include <algorithm>
#include <clocale>
#include <cstdio>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/unicode/tables.h"

namespace bv {
namespace {

constexpr char32_t not_utf8 = 0x110000;  // added to a byte that belongs to no character

// The character that `text` begins with, which is removed.
char32_t take_character(std::string_view& text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  const size_t bytes = first < 0x80 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  char32_t c = bytes == 1 ? first : first & (0x7F >> bytes);
  bool valid = bytes == 1 || (first >= 0xC2 && first < 0xF5 && text.size() >= bytes);
  for (size_t i = 1; valid && i < bytes; ++i) {
    valid = byte(i) >> 6 == 2;
    c = c << 6 | (byte(i) & 0x3F);
  }
  constexpr char32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
  valid = valid && c >= least[bytes] && c < not_utf8 && (c < 0xD800 || c > 0xDFFF);
  text.remove_prefix(valid ? bytes : 1);
  return valid ? c : not_utf8 + first;
}

void append(std::string& text, char32_t c) {
  const auto add = [&](char32_t byte) { text += static_cast<char>(byte); };
  if (c >= not_utf8) return add(c - not_utf8);
  if (c < 0x80) return add(c);
  const int more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
  add((0xFF00 >> (more + 1) & 0xFF) | c >> 6 * more);
  for (int shift = 6 * (more - 1); shift >= 0; shift -= 6) add(0x80 | (c >> shift & 0x3F));
}

struct Decomposition {
  char32_t first, second = 0;
};

class Tables {
 public:
  Tables() {
    for (const auto& [second, pairs] : unicode::composites)
      for (size_t i = 0; i < pairs.size(); i += 2) parts_[pairs[i + 1]] = {pairs[i], second};
    for (const auto& [first, equal] : unicode::singletons)
      for (size_t i = 0; i < equal.size(); ++i)
        parts_[first + static_cast<char32_t>(i)] = {equal[i]};
    for (const auto& [number, ranges] : unicode::combining_classes)
      for (size_t i = 0; i < ranges.size(); i += 2)
        for (char32_t c = ranges[i]; c <= ranges[i + 1]; ++c) classes_[c] = number;
  }
  const Decomposition* parts_of(char32_t c) const {
    const auto at = parts_.find(c);
    return at == parts_.end() ? nullptr : &at->second;
  }
  int class_of(char32_t c) const {
    const auto at = classes_.find(c);
    return at == classes_.end() ? 0 : at->second;
  }

 private:
  std::unordered_map<char32_t, Decomposition> parts_;
  std::unordered_map<char32_t, int> classes_;
};

void decompose(char32_t c, const Tables& tables, std::u32string& out) {
  constexpr char32_t syllables = 0xAC00, count = 11172, per_lead = 588, per_vowel = 28,
                     leads = 0x1100, vowels = 0x1161, tails = 0x11A7;
  if (c >= syllables && c < syllables + count) {
    const char32_t s = c - syllables;
    out += {leads + s / per_lead, vowels + s % per_lead / per_vowel};
    if (s % per_vowel > 0) out += tails + s % per_vowel;
  } else if (const Decomposition* parts = tables.parts_of(c)) {
    decompose(parts->first, tables, out);
    if (parts->second) decompose(parts->second, tables, out);
  } else {
    out += c;
  }
}

}  // namespace

std::string canonical(std::string_view utf8) {
  if (std::ranges::all_of(utf8, [](char c) { return static_cast<unsigned char>(c) < 0x80; }))
    return std::string(utf8);
  static const Tables tables;
  std::u32string all;
  while (!utf8.empty()) decompose(take_character(utf8), tables, all);
  // Marks of different classes don't touch each other, so their order means nothing.
  const auto is_mark = [&](char32_t c) { return tables.class_of(c) > 0; };
  for (auto at = all.begin(); at != all.end();) {
    const auto begin = std::find_if(at, all.end(), is_mark);
    at = std::find_if_not(begin, all.end(), is_mark);
    std::stable_sort(
        begin, at, [&](char32_t a, char32_t b) { return tables.class_of(a) < tables.class_of(b); });
  }
  std::string text;
  for (const char32_t c : all) append(text, c);
  return text;
}

std::string in_lower_case(std::string_view utf8) {
  static const locale_t utf8_locale = newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr);
  std::string text;
  while (!utf8.empty()) {
    const char32_t c = take_character(utf8);
    if (c >= 'A' && c <= 'Z')
      append(text, c - 'A' + 'a');
    else
      append(text, c < not_utf8 && utf8_locale ? towlower_l(c, utf8_locale) : c);
  }
  return text;
}

std::string in_escapes(std::string_view utf8) {
  std::string text = "$'";
  while (!utf8.empty()) {
    const char32_t c = take_character(utf8);
    const bool plain = c >= ' ' && c < 0x7F && c != '\'' && c != '\\';
    char escape[16];
    std::snprintf(escape, sizeof escape,
                  c >= not_utf8 ? "\\x%02X"
                  : c < 0x10000 ? "\\u%04X"
                                : "\\U%08X",
                  static_cast<unsigned>(c >= not_utf8 ? c - not_utf8 : c));
    text += plain ? std::string(1, static_cast<char>(c)) : escape;
  }
  return text + "'";
}

}  // namespace bv

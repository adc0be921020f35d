// Helpers for text that people read and write: numbers, lists, the nearest known word.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace bv {

// The shortest text that reads back as the same number; `digits` > 0: that many significant digits.
std::string format_number(double value, int digits = 0);
// The number that the whole text spells; nullopt unless it is a finite one. Ignores the locale.
std::optional<double> parse_number(std::string_view text);
std::optional<int64_t> parse_integer(std::string_view text);
std::optional<uint64_t> parse_unsigned(std::string_view text);

std::vector<std::string> split(std::string_view text, char separator);
std::string join(std::span<const std::string> items, std::string_view separator);

// "1 step", "2 steps", "2 processes"
std::string counted(int64_t number, std::string_view noun);

// The known word of smallest edit distance to `word`; empty if `word` is too long to be a name.
std::string nearest(std::string_view word, std::span<const std::string> known);
// " (did you mean NAME?)" if a known name begins with `word`, of four letters or more, or differs
// from it by at most one edit per three letters, and at most two; else "".
std::string suggestion(std::string_view word, std::span<const std::string> known,
                       std::string_view prefix = "");

// `text` made safe to print on one line: control characters, and bytes that aren't UTF-8 (some are
// control characters in other encodings), become '?'; long text is cut.
std::string printable(std::string_view text, size_t max_length = 120);

// `text` wrapped to `width` columns, all lines but the first indented.
std::string wrap(std::string_view text, size_t first_column, size_t indent, size_t width);

// The command by which the user started this program: ./launcher, or barevision if installed.
std::string own_command();
// `text` with each ./launcher replaced by own_command().
std::string as_called(std::string text);
// A word to paste into a shell, quoted where it must be.
std::string shell_word(const std::string&);

}  // namespace bv

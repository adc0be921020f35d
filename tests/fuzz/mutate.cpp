#include "tests/fuzz/mutate.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <vector>

namespace bv::test::fuzz {
namespace {

constexpr size_t max_bytes = 1 << 18;

constexpr std::array<const char*, 18> odd_numbers = {
    "-1",         "0",
    "1",          "-0",
    "2147483648", "4294967295",
    "4294967296", "9223372036854775807",
    "1e308",      "1e400",
    "-1e-400",    "18446744073709551615",
    "0.5",        "00",
    "1e",         "18446744073709551616",
    "\"1\"",      "999999999999999999999999999999999999"};

constexpr std::array<const char*, 12> odd_pieces = {
    "{", "}", "[", "]", "\"", ",", ":", "null", "\\u0000", "\xff\xfe", "[]", "\"F64\""};

}  // namespace

void Mutator::change_number(std::string& text) {
  std::vector<std::pair<size_t, size_t>> numbers;  // begin, length
  for (size_t i = 0; i < text.size(); ++i) {
    if (!std::isdigit(static_cast<unsigned char>(text[i]))) continue;
    const size_t begin = i;
    while (i < text.size() && std::isdigit(static_cast<unsigned char>(text[i]))) ++i;
    numbers.emplace_back(begin, i - begin);
  }
  if (numbers.empty()) return;
  const auto [begin, length] = numbers[below(numbers.size())];
  const std::string other =
      one_in(3) ? std::to_string(below(1000)) : odd_numbers[below(odd_numbers.size())];
  text.replace(begin, length, other);
}

void Mutator::repeat_piece(std::string& bytes) {
  const size_t from = below(bytes.size());
  const std::string piece = bytes.substr(from, 1 + below(one_in(2) ? 8 : bytes.size()));
  const size_t times = one_in(20) ? std::min<size_t>(1 + below(5000), max_bytes / piece.size()) : 1;
  std::string repeated;
  for (size_t i = 0; i < times; ++i) repeated += piece;
  bytes.insert(one_in(2) ? from : below(bytes.size() + 1), repeated);
}

void Mutator::damage_once(std::string& bytes) {
  if (bytes.empty()) bytes = "{";
  const size_t at = below(bytes.size());
  switch (below(9)) {
    case 0:
      bytes[at] = char(bytes[at] ^ (1 << below(8)));
      return;
    case 1:
      bytes[at] = char(below(256));
      return;
    case 2:
      bytes.resize(at);
      return;
    case 3:
      for (size_t n = 1 + below(40); n; --n) bytes += char(below(256));
      return;
    case 4:
      bytes.erase(at, 1 + below(one_in(2) ? 4 : bytes.size()));
      return;
    case 5:
      return repeat_piece(bytes);
    case 6:
      bytes.insert(at, odd_pieces[below(odd_pieces.size())]);
      return;
    default:
      change_number(bytes);
  }
}

void Mutator::damage(std::string& bytes) {
  for (size_t n = 1 + (one_in(2) ? below(4) : 0); n; --n) damage_once(bytes);
  if (bytes.size() > max_bytes) bytes.resize(max_bytes);
}

}  // namespace bv::test::fuzz

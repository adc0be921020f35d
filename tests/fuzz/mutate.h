// Seeded damage to text or bytes.
#pragma once
#include <cstdint>
#include <random>
#include <string>

namespace bv::test::fuzz {

class Mutator {
 public:
  explicit Mutator(uint64_t seed) : random_(seed) {}

  // Uniform in 0 .. n-1.
  size_t below(size_t n) { return n ? size_t(random_() % n) : 0; }
  bool one_in(size_t n) { return below(n) == 0; }

  // One to four of: bytes flipped or set, cut, grown, pieces taken out, doubled or moved, numbers
  // changed.
  void damage(std::string& bytes);
  // Replaces one decimal number by another, likely an impossible one.
  void change_number(std::string& text);

 private:
  void damage_once(std::string& bytes);
  void repeat_piece(std::string& bytes);

  std::mt19937_64 random_;
};

}  // namespace bv::test::fuzz

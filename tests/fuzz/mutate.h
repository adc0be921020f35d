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

  // Applies one to four of: flip or set bytes, cut, grow, remove, double or move pieces, change
  // numbers.
  void damage(std::string& bytes);
  // Replaces a decimal number by another, probably an impossible one.
  void change_number(std::string& text);

 private:
  void damage_once(std::string& bytes);
  void repeat_piece(std::string& bytes);

  std::mt19937_64 random_;
};

}  // namespace bv::test::fuzz

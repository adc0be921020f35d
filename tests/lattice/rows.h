// The rows of the lattice; tests/lattice/points.h explains their names.
#pragma once
#include <span>
#include <string>
#include <vector>

namespace bv::test {

// Equal: the files of the point are those of its base, byte for byte. Near: its losses are those of
// its reference within a tolerance, and its bytes differ. Far: the losses differ by more.
enum class Promise { equal, near, far };

struct Row {
  Promise promise;
  std::string name;
  double tolerance = 0;  // relative
  bool is_long = false;  // in make test-all only
};
std::span<const Row> lattice_rows();

// Two values that no row has together: the program refuses them, or one of them has no effect.
struct Excluded {
  std::string a, b;     // "facet=value"
  std::string words;    // a command with both
  std::string message;  // why it is refused; empty: it isn't
};
std::span<const Excluded> excluded_pairs();

}  // namespace bv::test

// Seeded data for tests: the same on every machine.
#pragma once
#include <cmath>
#include <cstdint>
#include <vector>

namespace bv::test {

class TestValues {
 public:
  explicit TestValues(uint64_t seed) : state_(seed) {}

  uint64_t word() {  // splitmix64
    uint64_t z = state_ += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
  double uniform() { return double(word() >> 40) * 0x1p-24; }
  int below(int n) { return int(word() % uint64_t(n)); }
  // All exactly representable in fp32.
  std::vector<double> normal(size_t n, double mean = 0, double deviation = 1) {
    std::vector<double> values(n);
    for (double& v : values) {
      double sum = -6;  // sum of twelve uniforms: mean 0, variance 1
      for (int i = 0; i < 12; ++i) sum += uniform();
      v = float(mean + deviation * sum);
    }
    return values;
  }
  std::vector<double> integers(size_t n, int lowest, int highest) {
    std::vector<double> values(n);
    for (double& v : values) v = lowest + below(highest - lowest + 1);
    return values;
  }

 private:
  uint64_t state_;
};

}  // namespace bv::test

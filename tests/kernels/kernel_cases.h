// Tools for an operation's test file, tests/kernels/NAME_test.cpp. To add an operation: write its
// oracle (plain loops in double precision, on Tracked numbers), check the oracle's backward against
// finite differences (check_gradient), describe its cases as Problems, and register them
// (add_cases). The arguments that it must refuse follow from its describe(); refuses<Op>() adds
// those that don't.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <set>

#include "kernels/philox.h"
#include "tests/kernels/kernel_problem.h"
#include "tests/numerics/format.h"

namespace bv::test {

class KernelCases : public std::vector<KernelCase> {
 public:
  // make(dtype, options...) returns a Problem.
  template <class Make, class... Options>
  void add(std::string name, Make make, Options... options) {
    push_back({std::move(name), [=](DType dtype) { return make(dtype, options...); }});
  }
  // The cases from number `first` on run on the stand-in, however large.
  void always(size_t first) {
    for (size_t i = first; i < size(); ++i) (*this)[i].always = true;
  }
  // All cases so far run in every dtype on every device.
  void in_every_dtype() {
    for (KernelCase& c : *this) c.every_dtype = true;
  }
  // All later cases run only in `make test-all`.
  void begin_sweep() { usual_ = size(); }
  size_t usual() const { return std::min(usual_, size()); }

 private:
  size_t usual_ = SIZE_MAX;
};

// Registers KernelTable/DEVICE.CASE for every device and dtype:
//   [[maybe_unused]] const bool added = add_cases(cases());
bool add_cases(KernelCases);
// The product of the sizes in a case's name, for choosing cases under tools that slow down tests.
double work_of(const std::string& name);
// Whether the name begins with one of the operations': "linear_forward_M17" is LinearForward's.
bool is_case_of(const std::vector<std::string>& operations, const std::string& name);
// All registered cases except the sweeps.
std::vector<KernelCase>& registered_cases();

// For sweeps: every remainder of every vector width, and sizes around those of blocks and tiles.
inline std::vector<int> sweep_of_sizes() {
  std::vector<int> sizes;
  for (int n = 1; n <= 40; ++n) sizes.push_back(n);
  for (const int n : {64, 128, 256, 512, 1024})
    for (const int off : {-1, 0, 1}) sizes.push_back(n + off);
  sizes.insert(sizes.end(), {192, 200, 264, 384, 768, 2047, 3072, 4096});
  return sizes;
}

// ---- for oracles --------------------------------------------------------------------------------
inline size_t at(int row, int columns, int column) {
  return size_t(row) * size_t(columns) + size_t(column);
}
inline Values values_of(const Tensor& t) {
  Values v;
  for (const Tracked& e : t) v.push_back(e.value);
  return v;
}
// Mean and biased variance of each column of [rows, C], as [2, C].
Tensor column_moments(const Values& inp, int rows, int C);
// Bit mask of the positive elements of out, of rows of C, as BatchNormForward saves it; bits past
// C, which are undefined there, are set.
std::vector<uint64_t> positive_words(const Values& out, int C);
inline bool kept(uint32_t decision, int image, uint32_t layer, float drop, const StepParams& p) {
  const uint32_t position = p.position + uint32_t(image);
  const Philox4 words = philox(p.seed, decision / 4, position, p.epoch, layer);
  return uniform(words.at[decision % 4]) >= drop;
}
// The images' positions wrap around 2^32.
constexpr StepParams drop_params{.seed = 0xFEDCBA9876543210u, .epoch = 9, .position = 0xFFFFFFFEu};
// x at (row, c) of rows of C, after dropout in a step of drop_params.
inline Tracked dropped(Tracked x, const Drop& d, int row, int c, int C) {
  if (d.drop == 0) return x;
  const int image = row / d.image_rows, element = row % d.image_rows * C + c;
  if (!kept(uint32_t(element), image, d.layer, d.drop, drop_params)) return 0;
  return x * (Tracked(1) / (Tracked(1) - d.drop));
}

// ---- the oracle's gradients ---------------------------------------------------------------------
inline double dot(const Values& a, const Tensor& b) {
  EXPECT_EQ(a.size(), b.size());
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i].value;
  return sum;
}

// Checks the oracle's `gradient` against central differences of `loss`, which reads `input`, at up
// to 119 elements.
void check_gradient(const char* name, Values& input, const Tensor& gradient,
                    const std::function<double()>& loss);

}  // namespace bv::test

// The rows of the table of tests: operations x shapes x options.
#pragma once
#include <vector>

#include "tests/kernels/kernel_problem.h"

namespace bv::test {

// For the sweeps of `make test-all`: every remainder of every vector width, and around what blocks
// and tiles hold.
inline std::vector<int> sweep_of_sizes() {
  std::vector<int> sizes;
  for (int n = 1; n <= 40; ++n) sizes.push_back(n);
  for (const int n : {64, 128, 256, 512, 1024})
    for (const int off : {-1, 0, 1}) sizes.push_back(n + off);
  sizes.insert(sizes.end(), {192, 200, 264, 384, 768, 2047, 3072, 4096});
  return sizes;
}
// Moves all cases behind the first `usual` ones to `make test-all`.
inline void sweep_behind(std::vector<KernelCase>& cases, size_t usual) {
  for (size_t i = usual; i < cases.size(); ++i) cases[i].test_all = true;
}

std::vector<KernelCase> input_cases();  // and tokens, dropout
std::vector<KernelCase> linear_cases();
std::vector<KernelCase> gelu_layernorm_cases();
std::vector<KernelCase> attention_cases();
std::vector<KernelCase> conv_cases();
std::vector<KernelCase> batchnorm_cases();
std::vector<KernelCase> pool_cases();
std::vector<KernelCase> loss_cases();
std::vector<KernelCase> optimizer_cases();

}  // namespace bv::test

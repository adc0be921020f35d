// The rows of the table of tests: operations x shapes x options.
#pragma once
#include <vector>

#include "tests/kernel_problem.h"

namespace bv {

std::vector<KernelCase> input_cases();  // and tokens, dropout
std::vector<KernelCase> linear_cases();
std::vector<KernelCase> gelu_layernorm_cases();
std::vector<KernelCase> attention_cases();
std::vector<KernelCase> loss_cases();
std::vector<KernelCase> optimizer_cases();

}  // namespace bv

// Hopper's instructions, each alone, on a GPU and on the stand-in: the first to tell whether a GPU
// does what the kernels rely on.
#pragma once
#include <string>
#include <vector>

namespace bv::test {

struct InstructionCheck {
  const char* name;
  std::string (*wrong)();  // empty: right
};

}  // namespace bv::test

namespace bv::cuda_gpu {
// Weak: null in test programs built where there is no GPU, into which nvcc's objects aren't linked.
[[gnu::weak]] std::vector<test::InstructionCheck> hopper_checks();
}  // namespace bv::cuda_gpu
namespace bv::simt_gpu {
std::vector<test::InstructionCheck> hopper_checks();
}

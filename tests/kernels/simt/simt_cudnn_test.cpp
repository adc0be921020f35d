// Convolutions by cuDNN (--conv cudnn) on its stand-in: the calls, the workspace, and the steps
// before and after them.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "kernels/cuda/make_cuda_kernels.h"
#include "tests/kernels/kernel_cases.h"

namespace bv::test {
namespace {

Device cudnn_on_simt() {
  for (Device& device : devices_to_test())
    if (device.name == "simt") {
      device.make_kernels = [] { return simt_gpu::make_cuda_kernels(nullptr, KernelSet::cudnn); };
      return device;
    }
  return {};
}

// Whether the case computes the weight gradient, alone or with the input gradient.
bool has_weight_gradient(const std::string& name) {
  return name.starts_with("conv_backward_") && !name.starts_with("conv_backward_input");
}

TEST(SimtCudnn, ComputesTheTablesConvolutions) {
  const Device device = cudnn_on_simt();
  if (device.name.empty()) GTEST_SKIP() << "the stand-in is not under test";
  int cases = 0;
  for (const KernelCase& c : registered_cases()) {
    if (!c.name.starts_with("conv_") || c.cpu_only || work_of(c.name) > 1 << 22) continue;
    for (const DType dtype : {DType::fp32, DType::fp16, DType::bf16}) {
      // cuDNN rounds the weight gradient to 16 bits, for which the table's tolerance is too
      // narrow; the lattice's row of a training in fp16 has another.
      const bool rounded = dtype != DType::fp32 && has_weight_gradient(c.name);
      const Problem problem = c.make(dtype);
      for (const unsigned char poison : {0xFF, 0x40})
        for (const std::string& failure : execute(problem, device, 0, poison).failures)
          if (!rounded || !failure.starts_with("dweight: ") ||
              failure.find("elements differ") == failure.npos)
            ADD_FAILURE() << c.name << ": " << failure;
      ++cases;
    }
  }
  EXPECT_GT(cases, 50) << cases;
}

}  // namespace
}  // namespace bv::test

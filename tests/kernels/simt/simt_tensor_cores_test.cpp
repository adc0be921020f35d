// The tolerances of the kernel table also hold for truncated sums, as on real tensor cores.
#include <gtest/gtest.h>

#include "simt/device/tensor_cores.h"
#include "tests/kernels/kernel_cases.h"

namespace bv::test {
namespace {

class SimtTensorCores : public testing::TestWithParam<simt::TensorCores> {
 protected:
  void SetUp() override { simt::tensor_cores = GetParam(); }
  void TearDown() override { simt::tensor_cores = {0, 0}; }
};

TEST_P(SimtTensorCores, CutOffWhatDoesNotFit) {
  const double products[] = {1, 0x1p-25, 0x1p-25, 0x1p-25, 0x1p-25};
  const auto sum = [&](float start) {
    return simt::truncated_sum(start, 5, [&](int i) { return products[i]; });
  };
  EXPECT_EQ(sum(1), 2);  // to nearest: 2 + 2^-23
  EXPECT_EQ(sum(-1), GetParam().block == 4 ? 0x1p-25f : GetParam().extra_bits == 2 ? 0x1p-23f : 0);
}

TEST_P(SimtTensorCores, PassTheTablesLongSums) {
  for (const Device& device : devices_to_test()) {
    if (device.name != "simt" && device.name != "simt_hopper") continue;
    int cases = 0;
    for (const KernelCase& c : registered_cases()) {
      const auto begins = [&](const char* words) { return c.name.starts_with(words); };
      if (c.name.find("exact") != c.name.npos ||
          !(begins("linear_backward_weight_M1501") || begins("linear_backward_weight_M2") ||
            begins("conv_backward_weight_N1_H100") || begins("linear_forward_M400_N8_K1032") ||
            begins("gelu_linear_backward_input_M400_N1032")) ||
          (device.operations && !is_case_of(*device.operations, c.name)))
        continue;
      for (const DType dtype : {DType::fp16, DType::bf16})
        for (const std::string& failure : execute(c.make(dtype), device, 0, 0xFF).failures)
          ADD_FAILURE() << c.name << ": " << failure;
      ++cases;
    }
    EXPECT_GE(cases, 5);
  }
}

INSTANTIATE_TEST_SUITE_P(OfAllKinds, SimtTensorCores,
                         testing::Values(simt::TensorCores{4, 1}, simt::TensorCores{8, 1},
                                         simt::TensorCores{16, 2}));

}  // namespace
}  // namespace bv::test

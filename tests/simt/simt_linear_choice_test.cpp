// The table that chooses how weight gradients of linear layers are computed, by chip and shape.
#include <gtest/gtest.h>

#include "kernels/gemm/linear_choice.h"

namespace bv::simt_gpu {
namespace {

constexpr LinearShape vit_tiny_qkv{.M = 256 * 197, .N = 576, .K = 192},
    vit_large_mlp{.M = 64 * 197, .N = 4096, .K = 1024};

static_assert(!in_one_pass(90, vit_tiny_qkv) && !in_one_pass(90, vit_large_mlp));

TEST(SimtLinearChoice, OtherChipsTakeOnePassBelowTheirLimit) {
  for (const int arch : {75, 80, 86, 89, 100, 120}) {
    EXPECT_TRUE(in_one_pass(arch, vit_tiny_qkv)) << arch;
    EXPECT_FALSE(in_one_pass(arch, vit_large_mlp)) << arch;
  }
}

TEST(SimtLinearChoice, SaysWhichWayAndWhy) {
  const std::string measured = describe_weight_gradient_choice(90),
                    derived = describe_weight_gradient_choice(80);
  EXPECT_TRUE(measured.starts_with("weight gradients of linear layers: cuBLASLt, then dbias (H100"))
      << measured;
  EXPECT_NE(measured.find("25077 images/s"), std::string::npos) << measured;
  EXPECT_NE(derived.find("one pass with dbias below 200 flops per byte, else cuBLASLt"),
            std::string::npos)
      << derived;
  EXPECT_NE(derived.find("not measured"), std::string::npos) << derived;
}

}  // namespace
}  // namespace bv::simt_gpu

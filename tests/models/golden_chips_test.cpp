// Forward and backward of a ViT in bf16 on the stand-in for two chips, on which different kernels
// compute the weight gradients of linear layers. The gradients of both chips agree within the
// rounding of fp32, and with PyTorch's float64 within that of bf16.
#ifdef BAREVISION_SIMT
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <map>

#include "engine/setup/device.h"
#include "tests/golden/model_run.h"

namespace bv::test::golden {
namespace {

using Gradients = std::map<std::string, HostTensor>;

Gradients gradients_on(const char* chip, const Model& model) {
  setenv("SIMT_ARCH", chip, 1);
  ModelRun run(make_backend(DeviceKind::simt, {.index = 0, .threads = 2}), model, DType::bf16);
  run.set_formula_weights();
  run.forward();
  run.backward();
  Gradients gradients = run.gradients();
  unsetenv("SIMT_ARCH");
  return gradients;
}

TEST(GoldenChips, GradientsInBf16AreTheSameButForTheOrderOfSums) {
  const Model model = read_model("vit_tiny_32");
  const Gradients before = gradients_on("sm_80", model), after = gradients_on("sm_90", model);
  ASSERT_EQ(before.size(), after.size());
  constexpr double bf16 = .05;  // twice the error measured for the roundings of 12 blocks
  int others = 0;
  for (const auto& [name, gradient] : after) {
    const Summary want = model.gradients.at(name).summary;
    EXPECT_EQ(difference(summarize(name, gradient.data), want, bf16), "") << name;
    const std::vector<float>& twin = before.at(name).data;
    for (size_t i = 0; i < twin.size(); ++i)
      ASSERT_NEAR(gradient.data[i], twin[i], 1e-5 * want.max) << name << " " << i;
    others += gradient.data != twin;
  }
  // The gradients of the four weights of each block differ, and those of some biases.
  EXPECT_GE(others, 4 * 12);
}

}  // namespace
}  // namespace bv::test::golden
#endif

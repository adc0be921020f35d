// The formula of the golden files gives the same values here as in Python, and the comparison of
// summaries detects wrong values.
#include "tests/golden/formula.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace bv::test::golden {
namespace {

TEST(Formula, PixelsAreThoseOfPython) {
  const FormulaChecks checks = read_formula_checks();
  const auto pixels = images(1, 8);
  EXPECT_EQ(std::vector<int>(pixels.begin(), pixels.end()), checks.pixels);
}

TEST(Formula, ParametersAreThoseOfPython) {
  for (const FormulaCheck& check : read_formula_checks().parameters) {
    SCOPED_TRACE(check.name);
    const auto values = parameter(check.name, check.shape);
    EXPECT_EQ(sample_indices(check.name, values.size()), check.samples);
    for (size_t k = 0; k < check.indices.size(); ++k)
      EXPECT_EQ(values[check.indices[k]], check.values[k]) << "element " << check.indices[k];
    const Summary summary = summarize(check.name, values);
    for (size_t k = 0; k < check.projections.size(); ++k)
      EXPECT_NEAR(summary.projections[k], check.projections[k],
                  1e-8 * std::max(1.0, std::abs(check.projections[k])));
  }
}

TEST(Formula, LabelsRepeat) { EXPECT_EQ(labels(4, 10), (std::vector<int32_t>{0, 7, 4, 1})); }

TEST(Formula, DifferenceSeesOneWrongElementAndNaN) {
  const auto values = signed_values("tensor", 1000);
  const Summary want = summarize("tensor", values);
  EXPECT_EQ(difference(want, want, 1e-6), "");
  auto wrong = values;
  wrong[345] += 0.5f;
  EXPECT_NE(difference(summarize("tensor", wrong), want, 1e-4), "");
  wrong[345] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_NE(difference(summarize("tensor", wrong), want, 1e3), "");
  auto shifted = values;
  std::rotate(shifted.begin(), shifted.begin() + 1, shifted.end());
  EXPECT_NE(difference(summarize("tensor", shifted), want, 1e-4), "");
}

TEST(Formula, ModelFilesAreWhole) {
  const Model tiny = read_model("vit_tiny_224");
  EXPECT_EQ(tiny.parameters, 5'717'416);
  EXPECT_EQ(tiny.logits.size(), 2000u);
  EXPECT_EQ(tiny.gradients.size(), 152u);
  EXPECT_EQ(read_model("vit_large_2_blocks").sizes, R"({"depth":2})");
  EXPECT_EQ(read_model("vit_tiny_32").logits.size(), 30u);
  const Model resnet = read_model("resnet34");
  EXPECT_EQ(resnet.gradients.size(), 110u);
  EXPECT_EQ(resnet.buffers.size(), 72u);
  EXPECT_EQ(resnet.evaluation_logits.size(), resnet.logits.size());
  EXPECT_EQ(read_model("resnext50_5_blocks").sizes, R"({"layers":[2,1,1,1]})");
  EXPECT_EQ(read_optimizers().cases.size(), 12u);
}

}  // namespace
}  // namespace bv::test::golden

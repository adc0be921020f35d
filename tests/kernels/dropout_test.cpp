// Dropout.
#include "tests/kernels/kernel_cases.h"

namespace bv::test {
namespace {

// ---- oracle -------------------------------------------------------------------------------------
namespace oracle {

Tensor dropout(const Values& inp, const StepParams& p, DropoutShape shape, uint32_t layer,
               float drop) {
  Tensor out(inp.size());
  for (int b = 0; b < shape.B; ++b)
    for (int e = 0; e < shape.elements; ++e) {
      const size_t i = at(b, shape.elements, e);
      if (kept(uint32_t(e), b, layer, drop, p))
        out[i] = drop == 0 ? inp[i] : inp[i] * (Tracked(1) / (Tracked(1) - drop));
    }
  return out;
}

}  // namespace oracle

// ---- the oracle's gradient and masks ------------------------------------------------------------
TEST(Oracle, Dropout) {
  TestValues random(7);
  const StepParams p{.seed = 5, .epoch = 1, .position = 9};
  const DropoutShape shape{3, 20};
  Values inp = random.normal(60);
  const Values dout = random.normal(60);
  check_gradient("inp", inp, oracle::dropout(dout, p, shape, 2, 0.3f),
                 [&] { return dot(dout, oracle::dropout(inp, p, shape, 2, 0.3f)); });
}

TEST(Oracle, DropoutKeepsTheStatedShareAndDependsOnEveryKey) {
  const StepParams p{.seed = 5, .epoch = 1, .position = 9};
  const auto mask = [](const StepParams& params, uint32_t layer, int image) {
    std::vector<bool> bits;
    for (uint32_t i = 0; i < 10000; ++i) bits.push_back(kept(i, image, layer, 0.25f, params));
    return bits;
  };
  const std::vector<bool> bits = mask(p, 0, 0);
  EXPECT_NEAR(std::count(bits.begin(), bits.end(), true) / 10000.0, 0.75, 0.02);
  EXPECT_NE(bits, mask(p, 1, 0));
  EXPECT_NE(bits, mask(p, 0, 1));
  EXPECT_NE(bits, mask({.seed = 6, .epoch = 1, .position = 9}, 0, 0));
  EXPECT_NE(bits, mask({.seed = 5, .epoch = 2, .position = 9}, 0, 0));
  // An image is identified by its position in the epoch, however it is batched.
  EXPECT_EQ(bits, mask({.seed = 5, .epoch = 1, .position = 6}, 0, 3));
}

// ---- cases --------------------------------------------------------------------------------------
Problem dropout(DType dtype, DropoutShape shape, float drop, bool in_place) {
  const auto [B, elements] = shape;
  Problem p(dtype);
  p.any_threads = true;
  p.exact = drop == 0 || drop == 0.5f || drop == 1;  // the factor is 1, 2 or unused
  const uint32_t layer = 11;
  const Values inp = p.data(size_t(B) * elements);
  p.output("out", {B, elements}, oracle::dropout(inp, drop_params, shape, layer, drop),
           in_place ? inp : Values{});
  if (!in_place) p.input("inp", {B, elements}, inp);
  p.objects<StepParams>("params", {drop_params});
  p.runs(Dropout{.shape = shape, .layer = layer, .drop = drop, .dtype = dtype},
         {{"inp", in_place ? "out" : "inp"}});
  return p;
}

KernelCases dropout_cases() {
  KernelCases cases;
  const auto add = [&](DropoutShape s) {
    for (const float drop : {0.0f, 0.1f, 0.5f, 0.9f, 1.0f})
      for (const bool in_place : {false, true})
        cases.add(
            "dropout" +
                sizes({{"B", s.B}, {"elements", s.elements}, {"percent", int(100 * drop + 0.5f)}}) +
                flag(in_place, "in_place"),
            dropout, s, drop, in_place);
  };
  for (const DropoutShape shape : {DropoutShape{1, 1}, {3, 37}, {40, 31}, {2, 17 * 192}})
    add(shape);
  cases.begin_sweep();
  for (const int n : sweep_of_sizes()) add({4, n});
  return cases;
}

[[maybe_unused]] const bool added = add_cases(dropout_cases());
[[maybe_unused]] const bool refused =
    refuses<Dropout>({{"drop", [](Dropout& op) { op.drop = -0.1f; }},
                      {"drop", [](Dropout& op) { op.drop = 1.1f; }},
                      {"drop", [](Dropout& op) { op.drop = NAN; }}});

}  // namespace
}  // namespace bv::test

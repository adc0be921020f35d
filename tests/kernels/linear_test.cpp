// Matrix products with bias: the oracle, its gradients against finite differences, and the cases.
#include "tests/kernels/kernel_cases.h"

namespace bv::test {
namespace {

// ---- oracle -------------------------------------------------------------------------------------
namespace oracle {

struct LinearGradient {
  Tensor dweight, dbias;
};

// dtype: of inp and weight. bias may be empty.
Tensor linear_forward(const Values& inp, const Values& weight, const Values& bias,
                      const LinearShape& s, DType dtype = DType::fp32) {
  const auto [M, N, K] = s;
  Tensor out(size_t(M) * N);
  for (int m = 0; m < M; ++m)
    for (int n = 0; n < N; ++n) {
      Tracked sum = 0;
      for (int k = 0; k < K; ++k) sum += Tracked(inp[at(m, K, k)]) * Tracked(weight[at(n, K, k)]);
      sum = on_tensor_cores(sum, K, dtype);
      out[at(m, N, n)] = bias.empty() ? sum : sum + Tracked(bias[n]);
    }
  return out;
}

Tensor linear_backward_input(const Values& dout, const Values& weight, const LinearShape& s,
                             DType dtype = DType::fp32) {
  const auto [M, N, K] = s;
  Tensor dinp(size_t(M) * K);
  for (int m = 0; m < M; ++m)
    for (int n = 0; n < N; ++n)
      for (int k = 0; k < K; ++k)
        dinp[at(m, K, k)] += Tracked(dout[at(m, N, n)]) * Tracked(weight[at(n, K, k)]);
  for (Tracked& sum : dinp) sum = on_tensor_cores(sum, N, dtype);
  return dinp;
}

LinearGradient linear_backward_weight(const Values& dout, const Values& inp, const LinearShape& s,
                                      DType dtype = DType::fp32) {
  const auto [M, N, K] = s;
  LinearGradient g{Tensor(size_t(N) * K), Tensor(N)};
  for (int m = 0; m < M; ++m)
    for (int n = 0; n < N; ++n) {
      for (int k = 0; k < K; ++k)
        g.dweight[at(n, K, k)] += Tracked(dout[at(m, N, n)]) * Tracked(inp[at(m, K, k)]);
      g.dbias[n] += Tracked(dout[at(m, N, n)]);
    }
  for (Tensor* sums : {&g.dweight, &g.dbias})
    for (Tracked& sum : *sums) sum = on_tensor_cores(sum, M, dtype);
  return g;
}

// ---- the oracle's gradients ---------------------------------------------------------------------
TEST(Oracle, Linear) {
  TestValues random(1);
  const LinearShape s{.M = 3, .N = 5, .K = 7};
  const auto [M, N, K] = s;
  Values inp = random.normal(M * K), weight = random.normal(N * K), bias = random.normal(N);
  const Values dout = random.normal(M * N);
  const auto loss = [&] { return dot(dout, linear_forward(inp, weight, bias, s)); };
  const LinearGradient g = linear_backward_weight(dout, inp, s);
  check_gradient("inp", inp, linear_backward_input(dout, weight, s), loss);
  check_gradient("weight", weight, g.dweight, loss);
  check_gradient("bias", bias, g.dbias, loss);
}

}  // namespace oracle

// ---- cases --------------------------------------------------------------------------------------
Problem forward(DType dtype, LinearShape s, bool with_bias, bool exact) {
  const auto [M, N, K] = s;
  Problem p(dtype);
  p.exact = exact;
  const Values inp = p.data(size_t(M) * K), weight = p.data(size_t(N) * K);
  const Values bias = with_bias ? p.data(N) : Values{};
  p.output("out", {M, N}, oracle::linear_forward(inp, weight, bias, s, dtype));
  p.input("inp", {M, K}, inp), p.input("weight", {N, K}, weight);
  if (with_bias) p.input("bias", {N}, bias);
  p.runs(LinearForward{.shape = s, .dtype = dtype});
  return p;
}

Problem backward_input(DType dtype, LinearShape s, bool exact) {
  const auto [M, N, K] = s;
  Problem p(dtype);
  p.exact = exact;
  const Values dout = p.data(size_t(M) * N), weight = p.data(size_t(N) * K);
  p.output("dinp", {M, K}, oracle::linear_backward_input(dout, weight, s, dtype));
  p.input("dout", {M, N}, dout), p.input("weight", {N, K}, weight);
  p.runs(LinearBackwardInput{.shape = s, .dtype = dtype});
  return p;
}

Problem backward_weight(DType dtype, LinearShape s, bool with_bias, bool accumulate, bool exact) {
  const auto [M, N, K] = s;
  Problem p(dtype);
  p.exact = exact;
  const Values dout = p.data(size_t(M) * N), inp = p.data(size_t(M) * K);
  const oracle::LinearGradient g = oracle::linear_backward_weight(dout, inp, s, dtype);
  p.gradient("dweight", {N, K}, g.dweight, accumulate);
  if (with_bias) p.gradient("dbias", {N}, g.dbias, accumulate);
  p.input("dout", {M, N}, dout), p.input("inp", {M, K}, inp);
  p.runs(LinearBackwardWeight{.shape = s, .dtype = dtype, .accumulate = accumulate});
  return p;
}

Problem backward(DType dtype, LinearShape s, bool accumulate, bool exact) {
  const auto [M, N, K] = s;
  Problem p(dtype);
  p.exact = exact;
  const Values dout = p.data(size_t(M) * N), inp = p.data(size_t(M) * K);
  const Values weight = p.data(size_t(N) * K);
  const oracle::LinearGradient g = oracle::linear_backward_weight(dout, inp, s, dtype);
  p.gradient("dweight", {N, K}, g.dweight, accumulate);
  p.gradient("dbias", {N}, g.dbias, accumulate);
  p.output("dinp", {M, K}, oracle::linear_backward_input(dout, weight, s, dtype));
  p.input("dout", {M, N}, dout), p.input("inp", {M, K}, inp), p.input("weight", {N, K}, weight);
  p.runs(LinearBackward{.weight = {.shape = s, .dtype = dtype, .accumulate = accumulate},
                        .input = {.shape = s, .dtype = dtype}});
  return p;
}

KernelCases linear_cases() {
  KernelCases cases;
  const auto add_weight = [&](const LinearShape& s) {
    const bool large = double(s.M) * s.N * s.K > 1e6;
    for (const bool exact : {false, true})
      for (const bool bias : {true, false})
        for (const bool accumulate : {false, true})
          if (!large || (accumulate == bias && (bias || !exact)))
            cases.add("linear_backward_weight" + sizes({{"M", s.M}, {"N", s.N}, {"K", s.K}}) +
                          flag(!bias, "nobias") + flag(exact, "exact") +
                          flag(accumulate, "accumulate"),
                      backward_weight, s, bias, accumulate, exact);
  };
  const auto add = [&](const LinearShape& s) {
    const std::string name = sizes({{"M", s.M}, {"N", s.N}, {"K", s.K}});
    const bool large = double(s.M) * s.N * s.K > 1e6;
    for (const bool exact : {false, true}) {
      const std::string kind = flag(exact, "exact");
      cases.add("linear_backward_input" + name + kind, backward_input, s, exact);
      for (const bool bias : {true, false})
        if (bias || !large || !exact)
          cases.add("linear_forward" + name + flag(!bias, "nobias") + kind, forward, s, bias,
                    exact);
    }
    add_weight(s);
  };
  // In order: small shapes of any kind; whole packs, which end within a tile or a step, or after a
  // second one; shapes for which Hopper's widest tiles are best, then shapes in which its blocks
  // compute several tiles and reuse each stage; from M1501 on, tiles and parts of the weight
  // gradient that end anywhere; heads of 10 and of 1000 classes, patches of 14 x 14 pixels,
  // ViT-Tiny's qkv, projection and second MLP layer, ViT-L's tokens.
  for (const LinearShape& s :
       {LinearShape{1, 1, 1}, {3, 5, 7},       {2, 1, 31},     {1, 127, 3},
        {17, 33, 65},         {3, 8, 8},       {65, 24, 40},   {130, 8, 56},
        {2, 136, 72},         {64, 48, 32},    {300, 192, 8},  {300, 8, 192},
        {270, 128, 8},        {270, 8, 128},   {33, 128, 128}, {530, 8, 8},
        {400, 8, 1032},       {1032, 8, 264},  {1501, 24, 17}, {25216, 8, 9},
        {1501, 24, 16},       {1633, 8, 136},  {1025, 136, 8}, {40, 264, 136},
        {33, 10, 192},        {1, 1000, 192},  {19, 72, 588},  {197, 576, 192},
        {197, 192, 192},      {197, 192, 768}, {5, 1024, 1024}})
    add(s);
  // Sums in parts on Hopper.
  add_weight({2500, 8, 8}), add_weight({2300, 24, 200});
  // Tiles that Hopper's consumers share; in the last, the second consumer's rows are past the end.
  const size_t shared = cases.size();
  for (const int width : {72, 136}) add({520, width, 264}), add({520, 264, width});
  add_weight({1900, 136, 72}), add_weight({600, 136, 512});
  // Both gradients: on Hopper, the input gradient's launch adds up the parts of the last three,
  // with fewer threads than columns and with more.
  for (const LinearShape& s :
       {LinearShape{3, 5, 7}, {65, 24, 40}, {2500, 8, 8}, {2300, 24, 200}, {1100, 264, 136}})
    for (const bool exact : {false, true})
      cases.add("linear_backward" + sizes({{"M", s.M}, {"N", s.N}, {"K", s.K}}) +
                    flag(exact, "exact_accumulate"),
                backward, s, exact, exact);
  cases.always(shared);
  cases.begin_sweep();
  // All layers' widths: ViT-Tiny's, ViT-L's, and the heads of ResNets.
  for (const int M : {1, 63, 65})
    for (const auto& [N, K] :
         {std::pair{576, 192}, {192, 192}, {768, 192}, {192, 768}, {1000, 192}})
      add({M, N, K});
  for (const auto& [N, K] :
       {std::pair{3072, 1024}, {4096, 1024}, {1024, 4096}, {1000, 1024}, {1000, 512}, {1000, 2048}})
    add({3, N, K});
  add({1970, 192, 192});
  for (const int M : {1, 2, 8, 9, 33})
    for (const int N : {1, 2, 8, 9, 33})
      for (const int K : {2, 7, 8, 16, 33}) add({M, N, K});
  return cases;
}

[[maybe_unused]] const bool added = add_cases(linear_cases());
[[maybe_unused]] const bool refused = refuses<LinearBackward>({
    {"of one layer", [](LinearBackward& o) { --o.input.shape.M; }},
    {"of one layer", [](LinearBackward& o) { o.input.dout = o.weight.inp; }},
    {"of one layer",
     [](LinearBackward& o) {
       o.input.dtype = o.weight.dtype == DType::fp32 ? DType::fp16 : DType::fp32;
     }},
});

#ifdef BAREVISION_SIMT
Device simt_as(const std::string& chip) {
  const auto devices = devices_to_test();
  Device simt = *std::ranges::find(devices, "simt", &Device::name);
  simt.chip = chip;
  return simt;
}

class LinearOn : public testing::TestWithParam<const char*> {};

Bytes dweight(const std::string& chip, const LinearShape& s, bool with_bias) {
  const Problem problem = backward_weight(DType::bf16, s, with_bias, false, false);
  const Outcome outcome = execute(problem, simt_as(chip), 0, 0xFF);
  EXPECT_EQ(outcome.failures, std::vector<std::string>());
  return outcome.outputs.at(0);
}

// The single pass adds in a different order from the library, so the bits show which of them ran.
TEST_P(LinearOn, WeightGradientsComeFromWhereTheTableSays) {
  const bool in_one_pass = GetParam() != std::string_view("sm_90");
  for (const LinearShape& s : {LinearShape{197, 576, 192}, {197, 192, 192}, {197, 192, 768}})
    EXPECT_EQ(dweight(GetParam(), s, true) != dweight(GetParam(), s, false), in_one_pass)
        << s.N << ", " << s.K;
}
INSTANTIATE_TEST_SUITE_P(Chips, LinearOn, testing::Values("sm_80", "sm_86", "sm_89", "sm_90"),
                         [](const auto& chosen) { return std::string(chosen.param); });

// The tests of KernelTable run as sm_80.
TEST(LinearOnSimt, WeightGradientsOfAnSm90AreRight) {
  const Device simt = simt_as("sm_90");
  int cases = 0;
  for (const KernelCase& c : registered_cases())
    if (c.name.starts_with("linear_backward_weight"))
      for (const DType dtype : {DType::fp16, DType::bf16}) {
        ++cases;
        for (const std::string& failure : execute(c.make(dtype), simt, 0, 0xFF).failures)
          ADD_FAILURE() << c.name << ": " << failure;
      }
  EXPECT_GE(cases, 100);
}
#endif

}  // namespace
}  // namespace bv::test

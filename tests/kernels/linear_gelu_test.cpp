// A linear layer followed by GELU, and the input gradient of a linear layer that follows GELU.
#include "tests/kernels/kernel_cases.h"
#include "tests/numerics/gelu.h"

namespace bv::test {
namespace {

// ---- oracle -----------------------------------------------------------------------------------
namespace oracle {

struct Forward {
  Tensor h, out;
};
struct Gradient {
  Tensor dinp, dbias;
};

// A device may round the product to the dtype before the GELU, which the tolerance allows for.
Tracked product(Tracked sum, int terms, DType dtype) {
  return in_16_bits(on_tensor_cores(sum, terms, dtype), dtype);
}

Forward linear_gelu_forward(const Values& inp, const Values& weight, const Values& bias,
                            const LinearShape& s, DType dtype = DType::fp32,
                            const Drop& drop = {}) {
  const auto [M, N, K] = s;
  Forward f;
  for (int m = 0; m < M; ++m)
    for (int n = 0; n < N; ++n) {
      Tracked sum = 0;
      for (int k = 0; k < K; ++k) sum += Tracked(inp[at(m, K, k)]) * Tracked(weight[at(n, K, k)]);
      f.h.push_back(on_tensor_cores(sum, K, dtype));
      f.out.push_back(dropped(gelu(product(sum, K, dtype) + Tracked(bias[n])), drop, m, n, N));
    }
  return f;
}

Gradient gelu_linear_backward_input(const Values& dout, const Values& inp, const Values& weight,
                                    const Values& bias, const LinearShape& s,
                                    DType dtype = DType::fp32, const Drop& drop = {}) {
  const auto [M, N, K] = s;
  Gradient g{Tensor(size_t(M) * K), Tensor(K)};
  for (int m = 0; m < M; ++m)
    for (int n = 0; n < N; ++n)
      for (int k = 0; k < K; ++k)
        g.dinp[at(m, K, k)] += Tracked(dout[at(m, N, n)]) * Tracked(weight[at(n, K, k)]);
  for (int m = 0; m < M; ++m)
    for (int k = 0; k < K; ++k) {
      const size_t i = at(m, K, k);
      g.dinp[i] = dropped(product(g.dinp[i], N, dtype), drop, m, k, K) *
                  gelu_slope(Tracked(inp[i]) + bias[k]);
      g.dbias[k] += g.dinp[i];
    }
  return g;
}

// a^T b, of [rows, A] and [rows, B]: a linear layer's weight gradient.
Tensor columns_product(const Values& a, int A, const Values& b, int B, DType dtype) {
  const int rows = int(a.size()) / A;
  Tensor out(size_t(A) * size_t(B));
  for (int r = 0; r < rows; ++r)
    for (int i = 0; i < A; ++i)
      for (int j = 0; j < B; ++j) out[at(i, B, j)] += Tracked(a[at(r, A, i)]) * b[at(r, B, j)];
  for (Tracked& sum : out) sum = on_tensor_cores(sum, rows, dtype);
  return out;
}

// ---- the oracle's gradient --------------------------------------------------------------------
// The function is gelu(inp + bias) weight^T; linear_gelu_forward with a unit matrix computes GELU.
TEST(Oracle, GeluLinear) {
  TestValues random(4);
  const LinearShape s{.M = 3, .N = 4, .K = 5};
  const auto [M, N, K] = s;
  Values inp = random.normal(M * K, 0, 2), bias = random.normal(K), unit(K * K);
  for (int k = 0; k < K; ++k) unit[at(k, K, k)] = 1;
  const Values weight = random.normal(N * K), dout = random.normal(M * N);
  const auto loss = [&] {
    const Values act = values_of(linear_gelu_forward(inp, unit, bias, {M, K, K}).out);
    double sum = 0;
    for (int m = 0; m < M; ++m)
      for (int n = 0; n < N; ++n)
        for (int k = 0; k < K; ++k)
          sum += dout[at(m, N, n)] * act[at(m, K, k)] * weight[at(n, K, k)];
    return sum;
  };
  const Gradient g = gelu_linear_backward_input(dout, inp, weight, bias, s);
  check_gradient("inp", inp, g.dinp, loss);
  check_gradient("bias", bias, g.dbias, loss);
}

}  // namespace oracle

// ---- cases ------------------------------------------------------------------------------------
// In an exact problem, sums are at most 16 * 16 in magnitude, exact in 16 bits; a bias of 320 or
// -320 then puts x where GELU is x or 0, and its slope 1 or 0, in every precision.
constexpr int exact_terms = 16;
Values bias_of(Problem& p, int n) {
  if (!p.exact) return p.data(size_t(n), 0, 0.5);
  Values bias(n);
  for (double& b : bias) b = p.random.below(2) ? 320 : -320;
  return bias;
}

Problem forward(DType dtype, LinearShape s, bool saved, bool exact, const Drop& drop) {
  const auto [M, N, K] = s;
  Problem p(dtype);
  p.exact = exact;
  // Sums of about 1, where GELU bends.
  const Values inp = p.data(size_t(M) * K), weight = p.data(size_t(N) * K, 0, 1.5 / std::sqrt(K));
  const Values bias = bias_of(p, N);
  const oracle::Forward f = oracle::linear_gelu_forward(inp, weight, bias, s, dtype, drop);
  p.output("out", {M, N}, f.out);
  if (saved) p.output("h", {M, N}, f.h);
  p.input("inp", {M, K}, inp), p.input("weight", {N, K}, weight), p.input("bias", {N}, bias);
  p.objects<StepParams>("params", {drop_params});
  p.runs(LinearGeluForward{.shape = s, .dropout = drop, .dtype = dtype});
  return p;
}

Problem backward_input(DType dtype, LinearShape s, bool accumulate, bool exact, const Drop& drop) {
  const auto [M, N, K] = s;
  Problem p(dtype);
  p.exact = exact;
  const Values dout = p.data(size_t(M) * N), weight = p.data(size_t(N) * K);
  const Values inp = p.data(size_t(M) * K, 0, 1.5), bias = bias_of(p, K);
  const oracle::Gradient g =
      oracle::gelu_linear_backward_input(dout, inp, weight, bias, s, dtype, drop);
  p.output("dinp", {M, K}, g.dinp);
  p.gradient("dgelu_bias", {K}, g.dbias, accumulate);
  p.input("dout", {M, N}, dout), p.input("h", {M, K}, inp);
  p.input("weight", {N, K}, weight), p.input("gelu_bias", {K}, bias);
  p.objects<StepParams>("params", {drop_params});
  p.runs(GeluLinearBackwardInput{
      .shape = s, .dropout = drop, .dtype = dtype, .accumulate = accumulate});
  return p;
}

Problem backward(DType dtype, LinearShape s, bool accumulate, const Drop& drop) {
  const auto [M, N, K] = s;
  Problem p(dtype);
  const Values dout = p.data(size_t(M) * N), weight = p.data(size_t(N) * K);
  const Values h = p.data(size_t(M) * K, 0, 1.5), bias = bias_of(p, K);
  const Values inp = p.data(size_t(M) * K);
  const oracle::Gradient g =
      oracle::gelu_linear_backward_input(dout, h, weight, bias, s, dtype, drop);
  const Tensor dweight = oracle::columns_product(dout, N, inp, K, dtype);
  p.output("dinp", {M, K}, g.dinp);
  p.gradient("dgelu_bias", {K}, g.dbias, accumulate);
  p.gradient("dweight", {N, K}, dweight, accumulate);
  p.input("dout", {M, N}, dout), p.input("inp", {M, K}, inp), p.input("h", {M, K}, h);
  p.input("weight", {N, K}, weight), p.input("gelu_bias", {K}, bias);
  p.objects<StepParams>("params", {drop_params});
  p.runs(GeluLinearBackward{
      .weight = {.shape = s, .dtype = dtype, .accumulate = accumulate},
      .input = {.shape = s, .dropout = drop, .dtype = dtype, .accumulate = accumulate}});
  return p;
}

KernelCases linear_gelu_cases() {
  KernelCases cases;
  const auto add = [&](const LinearShape& s) {
    const std::string name = sizes({{"M", s.M}, {"N", s.N}, {"K", s.K}});
    for (const bool exact : {false, true})
      for (const bool other : {false, true}) {
        const std::string kind = flag(exact, "exact");
        if (!exact || s.K <= exact_terms)
          cases.add("linear_gelu_forward" + name + flag(!other, "without_h") + kind, forward, s,
                    other, exact, Drop{});
        if (!exact || s.N <= exact_terms)
          cases.add("gelu_linear_backward_input" + name + flag(other, "accumulate") + kind,
                    backward_input, s, other, exact, Drop{});
      }
    // A factor of 2.
    const Drop drop{.image_rows = s.M % 5 ? 1 : 5, .layer = 6, .drop = 0.5f};
    cases.add("linear_gelu_forward" + name + "_dropout", forward, s, true, false, drop);
    cases.add("gelu_linear_backward_input" + name + "_dropout", backward_input, s, false, false,
              drop);
  };
  for (const LinearShape& s : {LinearShape{1, 1, 1},
                               {3, 5, 7},
                               {2, 31, 1},
                               {17, 65, 33},
                               {64, 48, 16},
                               {65, 16, 264},
                               {130, 40, 9},
                               {300, 192, 8},
                               {270, 128, 8},
                               {400, 16, 1032},
                               {400, 1032, 16},
                               {270, 8, 128}})
    add(s);
  // Tiles that Hopper's consumers share; in the last, the second consumer's rows are past the end.
  const size_t shared = cases.size();
  for (const int width : {72, 136})
    cases.add("linear_gelu_forward" + sizes({{"M", 520}, {"N", width}, {"K", 264}}), forward,
              LinearShape{520, width, 264}, true, false, Drop{});
  cases.add("gelu_linear_backward_input_M520_N264_K72", backward_input, LinearShape{520, 264, 72},
            false, false, Drop{});
  for (const LinearShape& s : {LinearShape{3, 5, 7}, {2500, 8, 16}, {1100, 136, 264}})
    cases.add("gelu_linear_backward" + sizes({{"M", s.M}, {"N", s.N}, {"K", s.K}}), backward, s,
              s.M % 3 == 1, Drop{});
  cases.add("gelu_linear_backward_M1100_N72_K64_dropout", backward, LinearShape{1100, 72, 64}, true,
            Drop{.image_rows = 11, .layer = 6, .drop = 0.5f});
  cases.always(shared);
  // ViT-Tiny's MLP.
  cases.add("linear_gelu_forward_M33_N768_K192", forward, LinearShape{33, 768, 192}, true, false,
            Drop{});
  cases.add("gelu_linear_backward_input_M33_N192_K768", backward_input, LinearShape{33, 192, 768},
            false, false, Drop{});
  cases.begin_sweep();
  for (const int M : {1, 63, 65}) add({M, 768, 192}), add({M, 192, 768});
  add({3, 4096, 1024}), add({3, 1024, 4096});
  add({1970, 192, 192});
  for (const int M : {1, 2, 9, 33})
    for (const int N : {1, 7, 8, 33})
      for (const int K : {2, 8, 16, 33}) add({M, N, K});
  return cases;
}

[[maybe_unused]] const bool added = add_cases(linear_gelu_cases());
[[maybe_unused]] const bool refused = refuses_wrong_drop<&LinearGeluForward::dropout>() &&
                                      refuses_wrong_drop<&GeluLinearBackwardInput::dropout>();

}  // namespace
}  // namespace bv::test

#include "tests/kernels/kernel_test.h"

namespace bv::test {
namespace {

namespace oracle {

struct GeluGradient {
  Tensor dinp, dbias;
};

constexpr double sqrt_half = 0.70710678118654752440, sqrt_2pi = 2.50662827463100050242;

Tensor bias_gelu_forward(const Values& inp, const Values& bias, int rows, int C) {
  Tensor out(inp.size());
  for (int r = 0; r < rows; ++r)
    for (int c = 0; c < C; ++c) {
      const Tracked x = Tracked(inp[at(r, C, c)]) + Tracked(bias[c]);
      out[at(r, C, c)] = x * Tracked(0.5) * (Tracked(1) + erf(x * Tracked(sqrt_half)));
    }
  return out;
}

GeluGradient bias_gelu_backward(const Values& dout, const Values& inp, const Values& bias, int rows,
                                int C) {
  GeluGradient g{Tensor(inp.size()), Tensor(C)};
  for (int r = 0; r < rows; ++r)
    for (int c = 0; c < C; ++c) {
      const size_t i = at(r, C, c);
      const Tracked x = Tracked(inp[i]) + Tracked(bias[c]);
      const Tracked cumulative = Tracked(0.5) * (Tracked(1) + erf(x * Tracked(sqrt_half)));
      const Tracked density = exp(Tracked(-0.5) * x * x) / Tracked(sqrt_2pi);
      g.dinp[i] = Tracked(dout[i]) * (cumulative + x * density);
      g.dbias[c] += g.dinp[i];
    }
  return g;
}

TEST(Oracle, BiasGelu) {
  TestValues random(2);
  const int rows = 4, C = 9;
  Values inp = random.normal(rows * C, 0, 2), bias = random.normal(C);
  const Values dout = random.normal(rows * C);
  const auto loss = [&] { return dot(dout, bias_gelu_forward(inp, bias, rows, C)); };
  const GeluGradient g = bias_gelu_backward(dout, inp, bias, rows, C);
  check_gradient("inp", inp, g.dinp, loss);
  check_gradient("bias", bias, g.dbias, loss);
  // Known values: gelu(1), gelu(-2).
  const Tensor known = bias_gelu_forward({1, -2}, {0, 0}, 1, 2);
  EXPECT_NEAR(known[0].value, 0.8413447460685429, 1e-15);
  EXPECT_NEAR(known[1].value, -0.04550026389635842, 1e-15);
}

}  // namespace oracle

struct Sizes {
  int rows, C;
  size_t count() const { return size_t(rows) * size_t(C); }
  std::string name() const { return sizes({{"rows", rows}, {"C", C}}); }
};

// Values where GELU bends, and where exp and erf run out of range.
Values gelu_inputs(Problem& p, size_t n) {
  Values x = p.random.normal(n, 0, 2.5);
  const Values special{0, -0.5, 5, -5, 8, -8, 13.5, -13.5, 20, -20, 100, -100, 1e4, -1e4};
  for (size_t i = 0; i < special.size() && i < n / 2; ++i) x[2 * i] = special[i];
  return p.held(x);
}

Problem gelu_forward(DType dtype, Sizes s) {
  Problem p(dtype);
  p.any_threads = true;
  const Values inp = gelu_inputs(p, s.count()), bias = p.data(s.C, 0, 0.25);
  p.output("out", {s.rows, s.C}, oracle::bias_gelu_forward(inp, bias, s.rows, s.C));
  p.input("inp", {s.rows, s.C}, inp), p.input("bias", {s.C}, bias);
  p.runs(BiasGeluForward{.shape = {s.rows, s.C}, .dtype = dtype});
  return p;
}

Problem gelu_backward(DType dtype, Sizes s, bool accumulate, bool in_place) {
  Problem p(dtype);
  const Values dout = p.data(s.count()), inp = gelu_inputs(p, s.count()), bias = p.data(s.C);
  oracle::GeluGradient g = oracle::bias_gelu_backward(dout, inp, bias, s.rows, s.C);
  p.output("dinp", {s.rows, s.C}, g.dinp, in_place ? dout : Values{});
  p.gradient("dbias", {s.C}, g.dbias, accumulate);
  if (!in_place) p.input("dout", {s.rows, s.C}, dout);
  p.input("inp", {s.rows, s.C}, inp), p.input("bias", {s.C}, bias);
  p.runs(BiasGeluBackward{.shape = {s.rows, s.C}, .dtype = dtype, .accumulate = accumulate},
         {{"dout", in_place ? "dinp" : "dout"}});
  return p;
}

KernelCases gelu_cases() {
  KernelCases cases;
  const auto add = [&](Sizes s) {
    cases.add("gelu_forward" + s.name(), gelu_forward, s);
    for (const bool accumulate : {false, true})
      for (const bool in_place : {false, true})
        cases.add("gelu_backward" + s.name() + flag(accumulate, "accumulate") +
                      flag(in_place, "in_place"),
                  gelu_backward, s, accumulate, in_place);
  };
  for (const Sizes s :
       {Sizes{1, 1}, {1, 7}, {3, 16}, {7, 33}, {31, 5}, {1501, 17}, {2, 1031}, {197, 768}})
    add(s);
  cases.begin_sweep();
  for (const int C : sweep_of_sizes())
    for (const int rows : {2, 65}) add({rows, C});
  return cases;
}

[[maybe_unused]] const bool added = add_cases(gelu_cases());

}  // namespace
}  // namespace bv::test

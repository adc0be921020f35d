// GELU of inp + bias, forward and backward.
#include "tests/kernels/kernel_test.h"

namespace bv::test {
namespace {

// ---- oracle -------------------------------------------------------------------------------------
namespace oracle {

struct GeluGradient {
  Tensor dinp, dbias;
};

constexpr double sqrt_half = 0.70710678118654752440, sqrt_2pi = 2.50662827463100050242;

Tensor bias_gelu_forward(const Values& inp, const Values& bias, RowsShape shape) {
  Tensor out(inp.size());
  for (int row = 0; row < shape.rows; ++row)
    for (int c = 0; c < shape.C; ++c) {
      const size_t i = at(row, shape.C, c);
      const Tracked x = Tracked(inp[i]) + bias[c];
      out[i] = x * 0.5 * (Tracked(1) + erf(x * sqrt_half));
    }
  return out;
}

GeluGradient bias_gelu_backward(const Values& dout, const Values& inp, const Values& bias,
                                RowsShape shape) {
  GeluGradient g{Tensor(inp.size()), Tensor(shape.C)};
  for (int row = 0; row < shape.rows; ++row)
    for (int c = 0; c < shape.C; ++c) {
      const size_t i = at(row, shape.C, c);
      const Tracked x = Tracked(inp[i]) + bias[c];
      const Tracked cumulative = Tracked(0.5) * (Tracked(1) + erf(x * sqrt_half));
      const Tracked density = exp(Tracked(-0.5) * x * x) / sqrt_2pi;
      g.dinp[i] = dout[i] * (cumulative + x * density);
      g.dbias[c] += g.dinp[i];
    }
  return g;
}

}  // namespace oracle

// ---- the oracle's gradient ----------------------------------------------------------------------
TEST(Oracle, BiasGelu) {
  TestValues random(2);
  const RowsShape shape{4, 9};
  const int n = shape.rows * shape.C;
  Values inp = random.normal(n, 0, 2), bias = random.normal(shape.C);
  const Values dout = random.normal(n);
  const auto loss = [&] { return dot(dout, oracle::bias_gelu_forward(inp, bias, shape)); };
  const oracle::GeluGradient g = oracle::bias_gelu_backward(dout, inp, bias, shape);
  check_gradient("inp", inp, g.dinp, loss);
  check_gradient("bias", bias, g.dbias, loss);
  // Known values: gelu(1), gelu(-2).
  const Tensor known = oracle::bias_gelu_forward({1, -2}, {0, 0}, {1, 2});
  EXPECT_NEAR(known[0].value, 0.8413447460685429, 1e-15);
  EXPECT_NEAR(known[1].value, -0.04550026389635842, 1e-15);
}

// ---- cases --------------------------------------------------------------------------------------
// Values where GELU bends, and where exp and erf run out of range.
Values gelu_inputs(Problem& p, size_t n) {
  Values x = p.random.normal(n, 0, 2.5);
  const Values special{0, -0.5, 5, -5, 8, -8, 13.5, -13.5, 20, -20, 100, -100, 1e4, -1e4};
  for (size_t i = 0; i < special.size() && i < n / 2; ++i) x[2 * i] = special[i];
  return p.held(x);
}

Problem gelu_forward(DType dtype, RowsShape shape) {
  const auto [rows, C] = shape;
  Problem p(dtype);
  p.any_threads = true;
  const Values inp = gelu_inputs(p, size_t(rows) * C), bias = p.data(C, 0, 0.25);
  p.output("out", {rows, C}, oracle::bias_gelu_forward(inp, bias, shape));
  p.input("inp", {rows, C}, inp), p.input("bias", {C}, bias);
  p.runs(BiasGeluForward{.shape = shape, .dtype = dtype});
  return p;
}

Problem gelu_backward(DType dtype, RowsShape shape, bool accumulate, bool in_place) {
  const auto [rows, C] = shape;
  const size_t n = size_t(rows) * C;
  Problem p(dtype);
  const Values dout = p.data(n), inp = gelu_inputs(p, n), bias = p.data(C);
  const oracle::GeluGradient g = oracle::bias_gelu_backward(dout, inp, bias, shape);
  p.output("dinp", {rows, C}, g.dinp, in_place ? dout : Values{});
  p.gradient("dbias", {C}, g.dbias, accumulate);
  if (!in_place) p.input("dout", {rows, C}, dout);
  p.input("inp", {rows, C}, inp), p.input("bias", {C}, bias);
  p.runs(BiasGeluBackward{.shape = shape, .dtype = dtype, .accumulate = accumulate},
         {{"dout", in_place ? "dinp" : "dout"}});
  return p;
}

KernelCases gelu_cases() {
  KernelCases cases;
  const auto add = [&](RowsShape shape) {
    const std::string name = sizes({{"rows", shape.rows}, {"C", shape.C}});
    cases.add("gelu_forward" + name, gelu_forward, shape);
    for (const bool accumulate : {false, true})
      for (const bool in_place : {false, true})
        cases.add(
            "gelu_backward" + name + flag(accumulate, "accumulate") + flag(in_place, "in_place"),
            gelu_backward, shape, accumulate, in_place);
  };
  for (const RowsShape shape :
       {RowsShape{1, 1}, {1, 7}, {3, 16}, {7, 33}, {31, 5}, {1501, 17}, {2, 1031}, {197, 768}})
    add(shape);
  cases.begin_sweep();
  for (const int C : sweep_of_sizes())
    for (const int rows : {2, 65}) add({rows, C});
  return cases;
}

[[maybe_unused]] const bool added = add_cases(gelu_cases());

}  // namespace
}  // namespace bv::test

// GELU of inp + bias, and tanh, forward and backward.
#include "tests/kernels/kernel_cases.h"
#include "tests/numerics/gelu.h"

namespace bv::test {
namespace {

// ---- oracle -------------------------------------------------------------------------------------
namespace oracle {

struct GeluGradient {
  Tensor dinp, dbias;
};

Tensor bias_gelu_forward(const Values& inp, const Values& bias, RowsShape shape,
                         const Drop& drop = {}) {
  Tensor out(inp.size());
  for (int row = 0; row < shape.rows; ++row)
    for (int c = 0; c < shape.C; ++c) {
      const size_t i = at(row, shape.C, c);
      out[i] = dropped(gelu(Tracked(inp[i]) + bias[c]), drop, row, c, shape.C);
    }
  return out;
}

GeluGradient bias_gelu_backward(const Values& dout, const Values& inp, const Values& bias,
                                RowsShape shape, const Drop& drop = {}) {
  GeluGradient g{Tensor(inp.size()), Tensor(shape.C)};
  for (int row = 0; row < shape.rows; ++row)
    for (int c = 0; c < shape.C; ++c) {
      const size_t i = at(row, shape.C, c);
      g.dinp[i] = dropped(dout[i], drop, row, c, shape.C) * gelu_slope(Tracked(inp[i]) + bias[c]);
      g.dbias[c] += g.dinp[i];
    }
  return g;
}

Tensor tanh_forward(const Values& inp) {
  Tensor out;
  for (const double x : inp) out.push_back(tanh(Tracked(x)));
  return out;
}

Tensor tanh_backward(const Values& dout, const Values& out) {
  Tensor dinp;
  for (size_t i = 0; i < out.size(); ++i)
    dinp.push_back(dout[i] * (Tracked(1) - Tracked(out[i]) * out[i]));
  return dinp;
}

}  // namespace oracle

// ---- the oracle's gradient ----------------------------------------------------------------------
TEST(Oracle, BiasGelu) {
  TestValues random(2);
  const RowsShape shape{4, 9};
  const Drop drop{.image_rows = 2, .layer = 3, .drop = .3f};
  const int n = shape.rows * shape.C;
  Values inp = random.normal(n, 0, 2), bias = random.normal(shape.C);
  const Values dout = random.normal(n);
  const auto loss = [&] { return dot(dout, oracle::bias_gelu_forward(inp, bias, shape, drop)); };
  const oracle::GeluGradient g = oracle::bias_gelu_backward(dout, inp, bias, shape, drop);
  check_gradient("inp", inp, g.dinp, loss);
  check_gradient("bias", bias, g.dbias, loss);
  // Known values: gelu(1), gelu(-2).
  const Tensor known = oracle::bias_gelu_forward({1, -2}, {0, 0}, {1, 2});
  EXPECT_NEAR(known[0].value, 0.8413447460685429, 1e-15);
  EXPECT_NEAR(known[1].value, -0.04550026389635842, 1e-15);
}

TEST(Oracle, Tanh) {
  TestValues random(3);
  Values inp = random.normal(30, 0, 1.5);
  const Values dout = random.normal(30);
  check_gradient("inp", inp, oracle::tanh_backward(dout, values_of(oracle::tanh_forward(inp))),
                 [&] { return dot(dout, oracle::tanh_forward(inp)); });
}

// ---- cases --------------------------------------------------------------------------------------
// Values where GELU bends, and where exp and erf run out of range.
Values gelu_inputs(Problem& p, size_t n) {
  Values x = p.random.normal(n, 0, 2.5);
  const Values special{0, -0.5, 5, -5, 8, -8, 13.5, -13.5, 20, -20, 100, -100, 1e4, -1e4};
  for (size_t i = 0; i < special.size() && i < n / 2; ++i) x[2 * i] = special[i];
  return p.held(x);
}

Problem gelu_forward(DType dtype, RowsShape shape, bool in_place, const Drop& drop) {
  const auto [rows, C] = shape;
  Problem p(dtype);
  p.any_threads = true;
  const Values inp = gelu_inputs(p, size_t(rows) * C), bias = p.data(C, 0, 0.25);
  p.output("out", {rows, C}, oracle::bias_gelu_forward(inp, bias, shape, drop),
           in_place ? inp : Values{});
  if (!in_place) p.input("inp", {rows, C}, inp);
  p.input("bias", {C}, bias);
  p.objects<StepParams>("params", {drop_params});
  p.runs(BiasGeluForward{.shape = shape, .dropout = drop, .dtype = dtype},
         {{"inp", in_place ? "out" : "inp"}});
  return p;
}

Problem gelu_backward(DType dtype, RowsShape shape, bool accumulate, bool in_place,
                      const Drop& drop) {
  const auto [rows, C] = shape;
  const size_t n = size_t(rows) * C;
  Problem p(dtype);
  const Values dout = p.data(n), inp = gelu_inputs(p, n), bias = p.data(C);
  const oracle::GeluGradient g = oracle::bias_gelu_backward(dout, inp, bias, shape, drop);
  p.output("dinp", {rows, C}, g.dinp, in_place ? dout : Values{});
  p.gradient("dbias", {C}, g.dbias, accumulate);
  if (!in_place) p.input("dout", {rows, C}, dout);
  p.input("inp", {rows, C}, inp), p.input("bias", {C}, bias);
  p.objects<StepParams>("params", {drop_params});
  p.runs(
      BiasGeluBackward{.shape = shape, .dropout = drop, .dtype = dtype, .accumulate = accumulate},
      {{"dout", in_place ? "dinp" : "dout"}});
  return p;
}

// Values where tanh(x) is about x, where it bends and where it is 1.
Values tanh_inputs(Problem& p, size_t n) {
  Values x = p.random.normal(n, 0, 1.5);
  const Values special{0, 1e-3, -1e-3, 0.25, -0.5, 5, -8, 9.5, -20, 100, -1e4};
  for (size_t i = 0; i < special.size() && i < n / 2; ++i) x[2 * i] = special[i];
  return p.held(x);
}

Problem tanh_forward(DType dtype, RowsShape shape, bool in_place) {
  const auto [rows, C] = shape;
  Problem p(dtype);
  p.any_threads = true;
  const Values inp = tanh_inputs(p, size_t(rows) * C);
  p.output("out", {rows, C}, oracle::tanh_forward(inp), in_place ? inp : Values{});
  if (!in_place) p.input("inp", {rows, C}, inp);
  p.runs(TanhForward{.shape = shape, .dtype = dtype}, {{"inp", in_place ? "out" : "inp"}});
  return p;
}

Problem tanh_backward(DType dtype, RowsShape shape, bool in_place) {
  const auto [rows, C] = shape;
  const size_t n = size_t(rows) * C;
  Problem p(dtype);
  p.any_threads = true;
  const Values dout = p.data(n), out = p.held(values_of(oracle::tanh_forward(tanh_inputs(p, n))));
  p.output("dinp", {rows, C}, oracle::tanh_backward(dout, out), in_place ? dout : Values{});
  if (!in_place) p.input("dout", {rows, C}, dout);
  p.input("out", {rows, C}, out);
  p.runs(TanhBackward{.shape = shape, .dtype = dtype}, {{"dout", in_place ? "dinp" : "dout"}});
  return p;
}

KernelCases gelu_cases() {
  KernelCases cases;
  const auto add = [&](RowsShape shape) {
    const std::string name = sizes({{"rows", shape.rows}, {"C", shape.C}});
    for (const bool in_place : {false, true}) {
      const std::string where = flag(in_place, "in_place");
      cases.add("gelu_forward" + name + where, gelu_forward, shape, in_place, Drop{});
      for (const bool accumulate : {false, true})
        cases.add("gelu_backward" + name + flag(accumulate, "accumulate") + where, gelu_backward,
                  shape, accumulate, in_place, Drop{});
    }
  };
  // Factors of 2 and 4, which cause no rounding; at a rate of 1 nothing is kept.
  const auto add_dropout = [&](RowsShape shape, int image_rows) {
    for (const float drop : {0.5f, 0.75f, 1.0f}) {
      const Drop d{.image_rows = image_rows, .layer = 6, .drop = drop};
      const std::string name = sizes({{"rows", shape.rows},
                                      {"C", shape.C},
                                      {"image_rows", image_rows},
                                      {"dropout", int(100 * drop + 0.5f)}});
      for (const bool in_place : {false, true}) {
        const std::string where = flag(in_place, "in_place");
        cases.add("gelu_forward" + name + where, gelu_forward, shape, in_place, d);
        cases.add("gelu_backward" + name + where, gelu_backward, shape, true, in_place, d);
      }
    }
  };
  for (const RowsShape shape :
       {RowsShape{1, 1}, {1, 7}, {3, 16}, {7, 33}, {31, 5}, {1501, 17}, {2, 1031}, {197, 768}})
    add(shape);
  add_dropout({8, 33}, 4), add_dropout({6, 16}, 1), add_dropout({75, 72}, 25);
  cases.begin_sweep();
  for (const int C : sweep_of_sizes())
    for (const int rows : {2, 65}) add({rows, C});
  return cases;
}

KernelCases tanh_cases() {
  KernelCases cases;
  const auto add = [&](RowsShape shape) {
    for (const bool in_place : {false, true}) {
      const std::string name =
          sizes({{"rows", shape.rows}, {"C", shape.C}}) + flag(in_place, "in_place");
      cases.add("tanh_forward" + name, tanh_forward, shape, in_place);
      cases.add("tanh_backward" + name, tanh_backward, shape, in_place);
    }
  };
  for (const RowsShape shape : {RowsShape{1, 1}, {1, 7}, {3, 16}, {7, 33}, {65, 768}}) add(shape);
  cases.begin_sweep();
  for (const int C : sweep_of_sizes())
    for (const int rows : {2, 65}) add({rows, C});
  return cases;
}

[[maybe_unused]] const bool added = add_cases(gelu_cases()) && add_cases(tanh_cases());
[[maybe_unused]] const bool refused = refuses_wrong_drop<&BiasGeluForward::dropout>() &&
                                      refuses_wrong_drop<&BiasGeluBackward::dropout>();

}  // namespace
}  // namespace bv::test

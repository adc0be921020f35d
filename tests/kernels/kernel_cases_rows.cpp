// Bias + GELU and layer normalisation.
#include "tests/kernels/kernel_cases.h"

namespace bv::test {
namespace {

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
  p.run = [=](Kernels& k, DeviceArguments& a) {
    launch(k, a,
           BiasGeluForward{.out = a.at("out"),
                           .inp = a.at("inp"),
                           .bias = a.at("bias"),
                           .shape = {s.rows, s.C},
                           .dtype = dtype});
  };
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
  p.run = [=](Kernels& k, DeviceArguments& a) {
    launch(k, a,
           BiasGeluBackward{.dinp = a.at("dinp"),
                            .dbias = a.at<float>("dbias"),
                            .dout = a.at(in_place ? "dinp" : "dout"),
                            .inp = a.at("inp"),
                            .bias = a.at("bias"),
                            .shape = {s.rows, s.C},
                            .dtype = dtype,
                            .accumulate = accumulate});
  };
  return p;
}

constexpr float eps = 1e-6f;

// `mean` of the data: far from zero, the variance must not be had as E[x^2] - E[x]^2.
Problem layernorm_forward(DType dtype, Sizes s, bool with_residual, double mean) {
  Problem p(dtype);
  p.any_threads = true;
  const Values inp = p.data(s.count(), mean), weight = p.data_fp32(s.C), bias = p.data_fp32(s.C);
  const Values residual = with_residual ? p.data(s.count(), mean) : Values{};
  oracle::LayerNormResult r =
      oracle::layernorm_forward(inp, residual, weight, bias, s.rows, s.C, eps, dtype);
  p.output("out", {s.rows, s.C}, r.out);
  if (with_residual) p.output("sum", {s.rows, s.C}, r.sum);
  p.output_fp32("mean", {s.rows}, r.mean), p.output_fp32("rstd", {s.rows}, r.rstd);
  p.input("inp", {s.rows, s.C}, inp);
  if (with_residual) p.input("residual", {s.rows, s.C}, residual);
  p.input_fp32("weight", {s.C}, weight), p.input_fp32("bias", {s.C}, bias);
  p.run = [=](Kernels& k, DeviceArguments& a) {
    launch(k, a,
           LayerNormForward{.out = a.at("out"),
                            .sum = a.optional("sum"),
                            .mean = a.at<float>("mean"),
                            .rstd = a.at<float>("rstd"),
                            .inp = a.at("inp"),
                            .residual = a.optional("residual"),
                            .weight = a.at<float>("weight"),
                            .bias = a.at<float>("bias"),
                            .shape = {s.rows, s.C},
                            .eps = eps,
                            .dtype = dtype});
  };
  return p;
}

// in_place: the argument that dinp lies on, or "".
Problem layernorm_backward(DType dtype, Sizes s, bool with_dsum, bool accumulate,
                           const std::string& in_place) {
  Problem p(dtype);
  const Values dout = p.data(s.count()), weight = p.data_fp32(s.C), sum = p.data(s.count(), 0.5, 2);
  const Values dsum = with_dsum ? p.data(s.count()) : Values{};
  const oracle::LayerNormResult r =
      oracle::layernorm_forward(sum, {}, weight, weight, s.rows, s.C, eps);
  const Values mean = rounded(r.mean), rstd = rounded(r.rstd);
  oracle::LayerNormGradient g =
      oracle::layernorm_backward(dout, dsum, sum, mean, rstd, weight, s.rows, s.C);
  p.output("dinp", {s.rows, s.C}, g.dinp,
           in_place == "dout"   ? dout
           : in_place == "dsum" ? dsum
                                : Values{});
  p.gradient("dweight", {s.C}, g.dweight, accumulate);
  p.gradient("dbias", {s.C}, g.dbias, accumulate);
  if (in_place != "dout") p.input("dout", {s.rows, s.C}, dout);
  if (with_dsum && in_place != "dsum") p.input("dsum", {s.rows, s.C}, dsum);
  p.input("sum", {s.rows, s.C}, sum), p.input_fp32("weight", {s.C}, weight);
  p.input_fp32("mean", {s.rows}, mean), p.input_fp32("rstd", {s.rows}, rstd);
  p.run = [=](Kernels& k, DeviceArguments& a) {
    launch(k, a,
           LayerNormBackward{.dinp = a.at("dinp"),
                             .dweight = a.at<float>("dweight"),
                             .dbias = a.at<float>("dbias"),
                             .dout = a.at(in_place == "dout" ? "dinp" : "dout"),
                             .dsum = a.optional(in_place == "dsum" ? "dinp" : "dsum"),
                             .sum = a.at("sum"),
                             .mean = a.at<float>("mean"),
                             .rstd = a.at<float>("rstd"),
                             .weight = a.at<float>("weight"),
                             .shape = {s.rows, s.C},
                             .dtype = dtype,
                             .accumulate = accumulate});
  };
  return p;
}

}  // namespace

std::vector<KernelCase> gelu_layernorm_cases() {
  std::vector<KernelCase> cases;
  const auto add_gelu = [&](Sizes s) {
    cases.push_back({"gelu_forward" + s.name(), [=](DType t) { return gelu_forward(t, s); }});
    for (const bool accumulate : {false, true})
      for (const bool in_place : {false, true})
        cases.push_back({"gelu_backward" + s.name() + flag(accumulate, "accumulate") +
                             flag(in_place, "in_place"),
                         [=](DType t) { return gelu_backward(t, s, accumulate, in_place); }});
  };
  const auto add_layernorm = [&](Sizes s) {
    for (const bool residual : {false, true})
      for (const double mean : {0.0, 300.0})
        cases.push_back({"layernorm_forward" + s.name() + flag(residual, "residual") +
                             flag(mean != 0, "offset"),
                         [=](DType t) { return layernorm_forward(t, s, residual, mean); }});
    for (const bool dsum : {false, true})
      for (const bool accumulate : {false, true})
        for (const char* in_place : {"", "dout", "dsum"}) {
          const std::string where = in_place;
          if (where == "dsum" && !dsum) continue;
          cases.push_back(
              {"layernorm_backward" + s.name() + flag(dsum, "dsum") +
                   flag(accumulate, "accumulate") + flag(!where.empty(), "in_place_of_") + where,
               [=](DType t) { return layernorm_backward(t, s, dsum, accumulate, where); }});
        }
  };
  for (const Sizes s :
       {Sizes{1, 1}, {1, 7}, {3, 16}, {7, 33}, {31, 5}, {1501, 17}, {2, 1031}, {197, 768}})
    add_gelu(s);
  for (const Sizes s : {Sizes{1, 1},
                        {1, 7},
                        {3, 16},
                        {5, 192},
                        {31, 33},
                        {1501, 17},
                        {2, 1031},
                        {197, 192},
                        {9, 1024},
                        {40, 264}})
    add_layernorm(s);
  const size_t usual = cases.size();
  for (const int C : sweep_of_sizes())
    for (const int rows : {2, 65}) add_gelu({rows, C}), add_layernorm({rows, C});
  sweep_behind(cases, usual);
  return cases;
}

}  // namespace bv::test

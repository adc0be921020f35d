#include "tests/kernels/kernel_test.h"

namespace bv::test {
namespace {

namespace oracle {

// an empty residual or dsum is none.
// Mean and rstd are those of sum as dtype holds it.
struct LayerNormResult {
  Tensor out, sum, mean, rstd;
};

struct LayerNormGradient {
  Tensor dinp, dweight, dbias;
};

LayerNormResult layernorm_forward(const Values& inp, const Values& residual, const Values& weight,
                                  const Values& bias, int rows, int C, double eps,
                                  DType dtype = DType::fp32) {
  LayerNormResult r{Tensor(inp.size()), Tensor(inp.size()), Tensor(rows), Tensor(rows)};
  for (int row = 0; row < rows; ++row) {
    Tracked total = 0, squares = 0;
    for (int c = 0; c < C; ++c) {
      const size_t i = at(row, C, c);
      r.sum[i] = residual.empty() ? Tracked(inp[i]) : Tracked(inp[i]) + Tracked(residual[i]);
      if (dtype != DType::fp32) r.sum[i] = held(held(r.sum[i].value, DType::fp32), dtype);
      total += r.sum[i];
    }
    const Tracked mean = total / Tracked(C);
    for (int c = 0; c < C; ++c) {
      const Tracked centred = r.sum[at(row, C, c)] - mean;
      squares += centred * centred;
    }
    const Tracked rstd = Tracked(1) / sqrt(squares / Tracked(C) + Tracked(eps));
    for (int c = 0; c < C; ++c) {
      const size_t i = at(row, C, c);
      r.out[i] = (r.sum[i] - mean) * rstd * Tracked(weight[c]) + Tracked(bias[c]);
    }
    r.mean[row] = mean, r.rstd[row] = rstd;
  }
  return r;
}

LayerNormGradient layernorm_backward(const Values& dout, const Values& dsum, const Values& sum,
                                     const Values& mean, const Values& rstd, const Values& weight,
                                     int rows, int C) {
  LayerNormGradient g{Tensor(sum.size()), Tensor(C), Tensor(C)};
  for (int r = 0; r < rows; ++r) {
    const Tracked scale = rstd[r];
    const auto xhat = [&](int c) { return (Tracked(sum[at(r, C, c)]) - Tracked(mean[r])) * scale; };
    const auto weighted = [&](int c) { return Tracked(dout[at(r, C, c)]) * Tracked(weight[c]); };
    Tracked mean_g = 0, mean_gx = 0;
    for (int c = 0; c < C; ++c) {
      mean_g += weighted(c), mean_gx += weighted(c) * xhat(c);
      g.dweight[c] += Tracked(dout[at(r, C, c)]) * xhat(c),
          g.dbias[c] += Tracked(dout[at(r, C, c)]);
    }
    mean_g = mean_g / Tracked(C), mean_gx = mean_gx / Tracked(C);
    for (int c = 0; c < C; ++c) {
      const Tracked d = scale * (weighted(c) - mean_g - xhat(c) * mean_gx);
      g.dinp[at(r, C, c)] = dsum.empty() ? d : d + Tracked(dsum[at(r, C, c)]);
    }
  }
  return g;
}

TEST(Oracle, LayerNorm) {
  TestValues random(3);
  const int rows = 3, C = 8;
  Values inp = random.normal(rows * C), residual = random.normal(rows * C);
  Values weight = random.normal(C), bias = random.normal(C);
  const Values dout = random.normal(rows * C), dsum = random.normal(rows * C);
  const auto forward = [&] {
    return layernorm_forward(inp, residual, weight, bias, rows, C, 1e-6);
  };
  const auto loss = [&] {
    const LayerNormResult r = forward();
    return dot(dout, r.out) + dot(dsum, r.sum);
  };
  const LayerNormResult r = forward();
  const LayerNormGradient g = layernorm_backward(dout, dsum, values_of(r.sum), values_of(r.mean),
                                                 values_of(r.rstd), weight, rows, C);
  check_gradient("inp", inp, g.dinp, loss);
  check_gradient("residual", residual, g.dinp, loss);
  check_gradient("weight", weight, g.dweight, loss);
  check_gradient("bias", bias, g.dbias, loss);
}

}  // namespace oracle

struct Sizes {
  int rows, C;
  size_t count() const { return size_t(rows) * size_t(C); }
  std::string name() const { return sizes({{"rows", rows}, {"C", C}}); }
};

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
  p.runs(LayerNormForward{.shape = {s.rows, s.C}, .eps = eps, .dtype = dtype});
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
  p.runs(LayerNormBackward{.shape = {s.rows, s.C}, .dtype = dtype, .accumulate = accumulate},
         {{"dout", in_place == "dout" ? "dinp" : "dout"},
          {"dsum", in_place == "dsum" ? "dinp" : "dsum"}});
  return p;
}

KernelCases layernorm_cases() {
  KernelCases cases;
  const auto add = [&](Sizes s) {
    for (const bool residual : {false, true})
      for (const double mean : {0.0, 300.0})
        cases.add(
            "layernorm_forward" + s.name() + flag(residual, "residual") + flag(mean != 0, "offset"),
            layernorm_forward, s, residual, mean);
    for (const bool dsum : {false, true})
      for (const bool accumulate : {false, true})
        for (const std::string in_place : {"", "dout", "dsum"})
          if (in_place != "dsum" || dsum)
            cases.add("layernorm_backward" + s.name() + flag(dsum, "dsum") +
                          flag(accumulate, "accumulate") + flag(!in_place.empty(), "in_place_of_") +
                          in_place,
                      layernorm_backward, s, dsum, accumulate, in_place);
  };
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
    add(s);
  cases.begin_sweep();
  for (const int C : sweep_of_sizes())
    for (const int rows : {2, 65}) add({rows, C});
  return cases;
}

[[maybe_unused]] const bool added = add_cases(layernorm_cases());

}  // namespace
}  // namespace bv::test

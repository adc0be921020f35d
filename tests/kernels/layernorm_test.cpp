// Layer normalisation: forward with and without a residual and its drop path, backward with and
// without dsum.
#include "tests/kernels/kernel_test.h"

namespace bv::test {
namespace {

// ---- oracle -------------------------------------------------------------------------------------
namespace oracle {

struct LayerNormResult {
  Tensor out, sum, mean, rstd;
};

struct LayerNormGradient {
  Tensor dinp, dresidual, dweight, dbias;
};

constexpr StepParams params{.seed = 0xFEDCBA9876543210u, .epoch = 9, .position = 0xFFFFFFFEu};
Tracked path_factor(const DropPath& path, int row) {
  if (path.drop == 0) return 1;
  if (!kept(0, row / path.image_rows, path.layer, path.drop, params)) return 0;
  return Tracked(1) / (Tracked(1) - path.drop);
}

// residual may be empty. Mean and rstd are computed from sum as dtype holds it.
LayerNormResult layernorm_forward(const Values& inp, const Values& residual, const Values& weight,
                                  const Values& bias, RowsShape shape, double eps,
                                  DType dtype = DType::fp32, const DropPath& path = {}) {
  const auto [rows, C] = shape;
  LayerNormResult r{Tensor(inp.size()), Tensor(inp.size()), Tensor(rows), Tensor(rows)};
  for (int row = 0; row < rows; ++row) {
    Tracked total = 0, squares = 0;
    for (int c = 0; c < C; ++c) {
      const size_t i = at(row, C, c);
      r.sum[i] = inp[i];
      if (!residual.empty()) r.sum[i] += path_factor(path, row) * residual[i];
      if (dtype != DType::fp32) r.sum[i] = held(held(r.sum[i].value, DType::fp32), dtype);
      total += r.sum[i];
    }
    const Tracked mean = total / C;
    for (int c = 0; c < C; ++c) {
      const Tracked centred = r.sum[at(row, C, c)] - mean;
      squares += centred * centred;
    }
    const Tracked rstd = Tracked(1) / sqrt(squares / C + eps);
    for (int c = 0; c < C; ++c) {
      const size_t i = at(row, C, c);
      r.out[i] = (r.sum[i] - mean) * rstd * weight[c] + bias[c];
    }
    r.mean[row] = mean, r.rstd[row] = rstd;
  }
  return r;
}

// dsum may be empty.
LayerNormGradient layernorm_backward(const Values& dout, const Values& dsum, const Values& sum,
                                     const Values& mean, const Values& rstd, const Values& weight,
                                     RowsShape shape, const DropPath& path = {}) {
  const auto [rows, C] = shape;
  LayerNormGradient g{Tensor(sum.size()), Tensor(sum.size()), Tensor(C), Tensor(C)};
  for (int row = 0; row < rows; ++row) {
    const auto xhat = [&](size_t i) { return (Tracked(sum[i]) - mean[row]) * rstd[row]; };
    Tracked mean_g = 0, mean_gx = 0;
    for (int c = 0; c < C; ++c) {
      const size_t i = at(row, C, c);
      const Tracked weighted = Tracked(dout[i]) * weight[c];
      mean_g += weighted, mean_gx += weighted * xhat(i);
      g.dweight[c] += dout[i] * xhat(i), g.dbias[c] += dout[i];
    }
    mean_g = mean_g / C, mean_gx = mean_gx / C;
    for (int c = 0; c < C; ++c) {
      const size_t i = at(row, C, c);
      const Tracked weighted = Tracked(dout[i]) * weight[c];
      g.dinp[i] = Tracked(rstd[row]) * (weighted - mean_g - xhat(i) * mean_gx);
      if (!dsum.empty()) g.dinp[i] += dsum[i];
      g.dresidual[i] = path_factor(path, row) * g.dinp[i];
    }
  }
  return g;
}

}  // namespace oracle

// ---- the oracle's gradient ----------------------------------------------------------------------
TEST(Oracle, LayerNorm) {
  TestValues random(3);
  const RowsShape shape{8, 8};
  const DropPath path{.image_rows = 2, .layer = 4, .drop = .4f};
  const int n = shape.rows * shape.C;
  Values inp = random.normal(n), residual = random.normal(n);
  Values weight = random.normal(shape.C), bias = random.normal(shape.C);
  const Values dout = random.normal(n), dsum = random.normal(n);
  const auto forward = [&] {
    return oracle::layernorm_forward(inp, residual, weight, bias, shape, 1e-6, DType::fp32, path);
  };
  const auto loss = [&] {
    const oracle::LayerNormResult r = forward();
    return dot(dout, r.out) + dot(dsum, r.sum);
  };
  const oracle::LayerNormResult r = forward();
  const oracle::LayerNormGradient g = oracle::layernorm_backward(
      dout, dsum, values_of(r.sum), values_of(r.mean), values_of(r.rstd), weight, shape, path);
  EXPECT_EQ(std::ranges::count(g.dresidual, 0, &Tracked::value), 2 * 2 * 8) << "two images";
  check_gradient("inp", inp, g.dinp, loss);
  check_gradient("residual", residual, g.dresidual, loss);
  check_gradient("weight", weight, g.dweight, loss);
  check_gradient("bias", bias, g.dbias, loss);
}

// ---- cases --------------------------------------------------------------------------------------
constexpr float eps = 1e-6f;

// `mean` of the data: far from zero, E[x^2] - E[x]^2 would lose the variance.
Problem layernorm_forward(DType dtype, RowsShape shape, bool with_residual, double mean,
                          const DropPath& path) {
  const auto [rows, C] = shape;
  const size_t n = size_t(rows) * C;
  Problem p(dtype);
  p.any_threads = true;
  const Values inp = p.data(n, mean), weight = p.data_fp32(C), bias = p.data_fp32(C);
  const Values residual = with_residual ? p.data(n, mean) : Values{};
  const oracle::LayerNormResult r =
      oracle::layernorm_forward(inp, residual, weight, bias, shape, eps, dtype, path);
  p.output("out", {rows, C}, r.out);
  if (with_residual) p.output("sum", {rows, C}, r.sum);
  p.output_fp32("mean", {rows}, r.mean), p.output_fp32("rstd", {rows}, r.rstd);
  p.input("inp", {rows, C}, inp);
  if (with_residual) p.input("residual", {rows, C}, residual);
  p.input_fp32("weight", {C}, weight), p.input_fp32("bias", {C}, bias);
  p.objects<StepParams>("params", {oracle::params});
  p.runs(LayerNormForward{.shape = shape, .drop_path = path, .eps = eps, .dtype = dtype});
  return p;
}

// in_place: the argument that dinp shares its memory with, or "".
Problem layernorm_backward(DType dtype, RowsShape shape, bool with_dsum, bool accumulate,
                           const std::string& in_place, const DropPath& path) {
  const auto [rows, C] = shape;
  const size_t n = size_t(rows) * C;
  Problem p(dtype);
  const Values dout = p.data(n), weight = p.data_fp32(C), sum = p.data(n, 0.5, 2);
  const Values dsum = with_dsum ? p.data(n) : Values{};
  const oracle::LayerNormResult r = oracle::layernorm_forward(sum, {}, weight, weight, shape, eps);
  const Values mean = rounded(r.mean), rstd = rounded(r.rstd);
  const oracle::LayerNormGradient g =
      oracle::layernorm_backward(dout, dsum, sum, mean, rstd, weight, shape, path);
  p.output("dinp", {rows, C}, g.dinp,
           in_place == "dout"   ? dout
           : in_place == "dsum" ? dsum
                                : Values{});
  if (path.drop > 0) p.output("dresidual", {rows, C}, g.dresidual);
  p.gradient("dweight", {C}, g.dweight, accumulate);
  p.gradient("dbias", {C}, g.dbias, accumulate);
  if (in_place != "dout") p.input("dout", {rows, C}, dout);
  if (with_dsum && in_place != "dsum") p.input("dsum", {rows, C}, dsum);
  p.input("sum", {rows, C}, sum), p.input_fp32("weight", {C}, weight);
  p.input_fp32("mean", {rows}, mean), p.input_fp32("rstd", {rows}, rstd);
  p.objects<StepParams>("params", {oracle::params});
  p.runs(
      LayerNormBackward{
          .shape = shape, .drop_path = path, .dtype = dtype, .accumulate = accumulate},
      {{in_place, "dinp"}});
  return p;
}

KernelCases layernorm_cases() {
  KernelCases cases;
  const auto add = [&](RowsShape shape) {
    const std::string name = sizes({{"rows", shape.rows}, {"C", shape.C}});
    for (const bool residual : {false, true})
      for (const double mean : {0.0, 300.0})
        cases.add(
            "layernorm_forward" + name + flag(residual, "residual") + flag(mean != 0, "offset"),
            layernorm_forward, shape, residual, mean, DropPath{});
    for (const bool dsum : {false, true})
      for (const bool accumulate : {false, true})
        for (const std::string in_place : {"", "dout", "dsum"})
          if (in_place != "dsum" || dsum)
            cases.add("layernorm_backward" + name + flag(dsum, "dsum") +
                          flag(accumulate, "accumulate") + flag(!in_place.empty(), "in_place_of_") +
                          in_place,
                      layernorm_backward, shape, dsum, accumulate, in_place, DropPath{});
  };
  const auto add_drop_path = [&](RowsShape shape, int image_rows, float drop) {
    const DropPath path{.image_rows = image_rows, .layer = 5, .drop = drop};
    const std::string name = sizes({{"rows", shape.rows},
                                    {"C", shape.C},
                                    {"image_rows", image_rows},
                                    {"percent", int(100 * drop + 0.5f)}});
    cases.add("layernorm_forward" + name, layernorm_forward, shape, true, 0.0, path);
    for (const std::string in_place : {"", "dout", "dsum"})
      cases.add("layernorm_backward" + name + flag(!in_place.empty(), "in_place_of_") + in_place,
                layernorm_backward, shape, true, false, in_place, path);
  };
  for (const RowsShape shape : {RowsShape{1, 1},
                                {1, 7},
                                {3, 16},
                                {5, 192},
                                {31, 33},
                                {1501, 17},
                                {2, 1031},
                                {197, 192},
                                {9, 1024},
                                {40, 264}})
    add(shape);
  for (const float drop : {0.5f, 0.75f, 1.0f}) {  // factors of 2 and 4: sum is rounded once
    add_drop_path({6, 33}, 1, drop);
    add_drop_path({12 * 5, 192}, 5, drop);
    add_drop_path({6 * 3, 1024}, 3, drop);
    add_drop_path({8 * 2, 264}, 2, drop);
  }
  cases.begin_sweep();
  for (const int C : sweep_of_sizes())
    for (const int rows : {2, 65}) add({rows, C});
  return cases;
}

[[maybe_unused]] const bool added = add_cases(layernorm_cases());

template <class Op>
bool refuses_drop_path() {
  return refuses<Op>(
      {{"drop", [](Op& op) { op.drop_path.drop = -0.1f; }},
       {"drop", [](Op& op) { op.drop_path.drop = 1.1f; }},
       {"drop", [](Op& op) { op.drop_path.drop = NAN; }},
       {"whole images", [](Op& op) { op.drop_path.image_rows = op.shape.rows + 1; }}});
}
[[maybe_unused]] const bool refused =
    refuses_drop_path<LayerNormForward>() && refuses_drop_path<LayerNormBackward>();

}  // namespace
}  // namespace bv::test

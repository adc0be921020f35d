// Layer normalisation: forward with and without a residual and its dropout, backward with and
// without dsum; both also fused with a linear layer.
#include "tests/kernels/kernel_cases.h"

namespace bv::test {
namespace {

struct Drops {
  Drop dropout, drop_path;
  bool any() const { return dropout.drop > 0 || drop_path.drop > 0; }
};

// ---- oracle -------------------------------------------------------------------------------------
namespace oracle {

struct LayerNormResult {
  Tensor out, sum, mean, rstd;
};

struct LayerNormGradient {
  Tensor dinp, dresidual, dweight, dbias;
};

// The residual's x at (row, c), after dropout and drop path.
Tracked what_is_left(Tracked x, const Drops& drops, int row, int c, int C) {
  const Drop& path = drops.drop_path;
  x = dropped(x, drops.dropout, row, c, C);
  if (path.drop == 0) return x;
  if (!kept(0, row / path.image_rows, path.layer, path.drop, drop_params)) return 0;
  return x * (Tracked(1) / (Tracked(1) - path.drop));
}

// sum as dtype holds it, if it is known to the last bit.
Tracked rounded_once(Tracked sum, DType dtype) {
  return dtype == DType::fp32 ? sum : held(held(sum.value, DType::fp32), dtype);
}

// residual may be empty. Mean and rstd are computed from stored(sum, dtype), sum as it is stored.
LayerNormResult layernorm_forward(const Values& inp, const Tensor& residual, const Values& weight,
                                  const Values& bias, RowsShape shape, double eps,
                                  DType dtype = DType::fp32, const Drops& drops = {},
                                  Tracked stored(Tracked, DType) = rounded_once) {
  const auto [rows, C] = shape;
  LayerNormResult r{Tensor(inp.size()), Tensor(inp.size()), Tensor(rows), Tensor(rows)};
  for (int row = 0; row < rows; ++row) {
    Tracked total = 0, squares = 0;
    for (int c = 0; c < C; ++c) {
      const size_t i = at(row, C, c);
      r.sum[i] = inp[i];
      if (!residual.empty()) r.sum[i] += what_is_left(residual[i], drops, row, c, C);
      total += stored(r.sum[i], dtype);
    }
    const Tracked mean = total / C;
    for (int c = 0; c < C; ++c) {
      const Tracked centred = stored(r.sum[at(row, C, c)], dtype) - mean;
      squares += centred * centred;
    }
    const Tracked rstd = Tracked(1) / sqrt(squares / C + eps);
    for (int c = 0; c < C; ++c) {
      const size_t i = at(row, C, c);
      r.out[i] = (stored(r.sum[i], dtype) - mean) * rstd * weight[c] + bias[c];
    }
    r.mean[row] = mean, r.rstd[row] = rstd;
  }
  return r;
}

// dsum may be empty.
LayerNormGradient layernorm_backward(const Tensor& dout, const Values& dsum, const Values& sum,
                                     const Values& mean, const Values& rstd, const Values& weight,
                                     RowsShape shape, const Drops& drops = {}) {
  const auto [rows, C] = shape;
  LayerNormGradient g{Tensor(sum.size()), Tensor(sum.size()), Tensor(C), Tensor(C)};
  for (int row = 0; row < rows; ++row) {
    const auto xhat = [&](size_t i) { return (Tracked(sum[i]) - mean[row]) * rstd[row]; };
    Tracked mean_g = 0, mean_gx = 0;
    for (int c = 0; c < C; ++c) {
      const size_t i = at(row, C, c);
      const Tracked weighted = dout[i] * weight[c];
      mean_g += weighted, mean_gx += weighted * xhat(i);
      g.dweight[c] += dout[i] * xhat(i), g.dbias[c] += dout[i];
    }
    mean_g = mean_g / C, mean_gx = mean_gx / C;
    for (int c = 0; c < C; ++c) {
      const size_t i = at(row, C, c);
      const Tracked weighted = dout[i] * weight[c];
      g.dinp[i] = Tracked(rstd[row]) * (weighted - mean_g - xhat(i) * mean_gx);
      if (!dsum.empty()) g.dinp[i] += dsum[i];
      g.dresidual[i] = what_is_left(g.dinp[i], drops, row, c, C);
    }
  }
  return g;
}

}  // namespace oracle

// ---- the oracle's gradient ----------------------------------------------------------------------
TEST(Oracle, LayerNorm) {
  TestValues random(3);
  const RowsShape shape{8, 8};
  const Drops drops{.dropout = {.image_rows = 4, .layer = 3, .drop = .3f},
                    .drop_path = {.image_rows = 2, .layer = 4, .drop = .4f}};
  const int n = shape.rows * shape.C;
  Values inp = random.normal(n), residual = random.normal(n);
  Values weight = random.normal(shape.C), bias = random.normal(shape.C);
  const Values dout = random.normal(n), dsum = random.normal(n);
  const auto forward = [&] {
    return oracle::layernorm_forward(inp, exactly(residual), weight, bias, shape, 1e-6, DType::fp32,
                                     drops);
  };
  const auto loss = [&] {
    const oracle::LayerNormResult r = forward();
    return dot(dout, r.out) + dot(dsum, r.sum);
  };
  const oracle::LayerNormResult r = forward();
  const oracle::LayerNormGradient g =
      oracle::layernorm_backward(exactly(dout), dsum, values_of(r.sum), values_of(r.mean),
                                 values_of(r.rstd), weight, shape, drops);
  const auto zeros = std::ranges::count(g.dresidual, 0, &Tracked::value);
  EXPECT_GT(zeros, 2 * 2 * 8) << "two images, and elements of the others";
  EXPECT_LT(zeros, 2 * 2 * 8 + 2 * 8);
  check_gradient("inp", inp, g.dinp, loss);
  check_gradient("residual", residual, g.dresidual, loss);
  check_gradient("weight", weight, g.dweight, loss);
  check_gradient("bias", bias, g.dbias, loss);
}

// ---- cases --------------------------------------------------------------------------------------
constexpr float eps = 1e-6f;

// `mean` of the data: far from zero, E[x^2] - E[x]^2 would lose the variance.
Problem layernorm_forward(DType dtype, RowsShape shape, bool with_residual, double mean,
                          const Drops& drops) {
  const auto [rows, C] = shape;
  const size_t n = size_t(rows) * C;
  Problem p(dtype);
  p.any_threads = true;
  const Values inp = p.data(n, mean), weight = p.data_fp32(C), bias = p.data_fp32(C);
  const Values residual = with_residual ? p.data(n, mean) : Values{};
  const oracle::LayerNormResult r =
      oracle::layernorm_forward(inp, exactly(residual), weight, bias, shape, eps, dtype, drops);
  p.output("out", {rows, C}, r.out);
  if (with_residual) p.output("sum", {rows, C}, r.sum);
  p.output_fp32("mean", {rows}, r.mean), p.output_fp32("rstd", {rows}, r.rstd);
  p.input("inp", {rows, C}, inp);
  if (with_residual) p.input("residual", {rows, C}, residual);
  p.input_fp32("weight", {C}, weight), p.input_fp32("bias", {C}, bias);
  p.objects<StepParams>("params", {drop_params});
  p.runs(LayerNormForward{.shape = shape,
                          .dropout = drops.dropout,
                          .drop_path = drops.drop_path,
                          .eps = eps,
                          .dtype = dtype});
  return p;
}

// in_place: the argument that dinp shares its memory with, or "".
Problem layernorm_backward(DType dtype, RowsShape shape, bool with_dsum, bool accumulate,
                           const std::string& in_place, const Drops& drops) {
  const auto [rows, C] = shape;
  const size_t n = size_t(rows) * C;
  Problem p(dtype);
  const Values dout = p.data(n), weight = p.data_fp32(C), sum = p.data(n, 0.5, 2);
  const Values dsum = with_dsum ? p.data(n) : Values{};
  const oracle::LayerNormResult r = oracle::layernorm_forward(sum, {}, weight, weight, shape, eps);
  const Values mean = rounded(r.mean), rstd = rounded(r.rstd);
  const oracle::LayerNormGradient g =
      oracle::layernorm_backward(exactly(dout), dsum, sum, mean, rstd, weight, shape, drops);
  p.output("dinp", {rows, C}, g.dinp,
           in_place == "dout"   ? dout
           : in_place == "dsum" ? dsum
                                : Values{});
  if (drops.any()) p.output("dresidual", {rows, C}, g.dresidual);
  p.gradient("dweight", {C}, g.dweight, accumulate);
  p.gradient("dbias", {C}, g.dbias, accumulate);
  if (in_place != "dout") p.input("dout", {rows, C}, dout);
  if (with_dsum && in_place != "dsum") p.input("dsum", {rows, C}, dsum);
  p.input("sum", {rows, C}, sum), p.input_fp32("weight", {C}, weight);
  p.input_fp32("mean", {rows}, mean), p.input_fp32("rstd", {rows}, rstd);
  p.objects<StepParams>("params", {drop_params});
  p.runs(LayerNormBackward{.shape = shape,
                           .dropout = drops.dropout,
                           .drop_path = drops.drop_path,
                           .dtype = dtype,
                           .accumulate = accumulate},
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
            layernorm_forward, shape, residual, mean, Drops{});
    for (const bool dsum : {false, true})
      for (const bool accumulate : {false, true})
        for (const std::string in_place : {"", "dout", "dsum"})
          if (in_place != "dsum" || dsum)
            cases.add("layernorm_backward" + name + flag(dsum, "dsum") +
                          flag(accumulate, "accumulate") + flag(!in_place.empty(), "in_place_of_") +
                          in_place,
                      layernorm_backward, shape, dsum, accumulate, in_place, Drops{});
  };
  const auto add_drop_path = [&](RowsShape shape, int image_rows, float drop) {
    const Drops path{.drop_path = {.image_rows = image_rows, .layer = 5, .drop = drop}};
    const std::string name = sizes({{"rows", shape.rows},
                                    {"C", shape.C},
                                    {"image_rows", image_rows},
                                    {"percent", int(100 * drop + 0.5f)}});
    cases.add("layernorm_forward" + name, layernorm_forward, shape, true, 0.0, path);
    for (const std::string in_place : {"", "dout", "dsum"})
      cases.add("layernorm_backward" + name + flag(!in_place.empty(), "in_place_of_") + in_place,
                layernorm_backward, shape, true, false, in_place, path);
  };
  const auto add_dropout = [&](RowsShape shape, int image_rows, float drop, float drop_path) {
    const Drops drops{.dropout = {.image_rows = image_rows, .layer = 6, .drop = drop},
                      .drop_path = {.image_rows = image_rows, .layer = 7, .drop = drop_path}};
    const std::string name = sizes({{"rows", shape.rows},
                                    {"C", shape.C},
                                    {"image_rows", image_rows},
                                    {"dropout", int(100 * drop + 0.5f)}}) +
                             flag(drop_path > 0, "drop_path");
    cases.add("layernorm_forward" + name, layernorm_forward, shape, true, 0.0, drops);
    for (const std::string in_place : {"", "dout"})
      cases.add("layernorm_backward" + name + flag(!in_place.empty(), "in_place_of_") + in_place,
                layernorm_backward, shape, true, false, in_place, drops);
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
    for (const float path : {0.0f, 0.5f}) {
      add_dropout({6, 33}, 3, drop, path);
      add_dropout({12 * 5, 192}, 5, drop, path);
      add_dropout({6 * 3, 1024}, 3, drop, path);
      add_dropout({8 * 2, 264}, 1, drop, path);
    }
  }
  cases.begin_sweep();
  for (const int C : sweep_of_sizes())
    for (const int rows : {2, 65}) add({rows, C});
  return cases;
}

// ---- with a linear layer ------------------------------------------------------------------------
// sum over k of a(m, k) b(n, k). A device may round the sum to the dtype before the layer norm
// reads it: the tolerance allows for that.
Tensor product(int M, int N, int K, DType dtype, auto a, auto b) {
  Tensor sums(size_t(M) * N);
  for (int m = 0; m < M; ++m)
    for (int n = 0; n < N; ++n) {
      Tracked& sum = sums[at(m, N, n)];
      for (int k = 0; k < K; ++k) sum += Tracked(a(m, k)) * Tracked(b(n, k));
      sum = on_tensor_cores(sum, K, dtype);
    }
  return sums;
}

Problem linear_norm_forward(DType dtype, LinearShape s, bool with_bias, const Drops& drops) {
  const auto [M, N, K] = s;
  Problem p(dtype);
  const Values inp = p.data(size_t(M) * K), weight = p.data(size_t(N) * K, 0, 1 / std::sqrt(K));
  const Values bias = with_bias ? p.data(N) : Values{}, stream = p.data(size_t(M) * N, 1);
  const Values norm_weight = p.data_fp32(N), norm_bias = p.data_fp32(N);
  Tensor residual = product(
      M, N, K, dtype, [&](int m, int k) { return inp[at(m, K, k)]; },
      [&](int n, int k) { return weight[at(n, K, k)]; });
  for (size_t i = 0; i < residual.size(); ++i) {
    if (with_bias) residual[i] += bias[i % size_t(N)];
    residual[i] = in_16_bits(residual[i], dtype);
  }
  const oracle::LayerNormResult r = oracle::layernorm_forward(
      stream, residual, norm_weight, norm_bias, {M, N}, eps, dtype, drops, in_16_bits);
  p.output("out", {M, N}, r.out), p.output("sum", {M, N}, r.sum);
  p.output_fp32("mean", {M}, r.mean), p.output_fp32("rstd", {M}, r.rstd);
  p.input("inp", {M, K}, inp), p.input("stream", {M, N}, stream);
  p.input("weight", {N, K}, weight);
  if (with_bias) p.input("bias", {N}, bias);
  p.input_fp32("norm_weight", {N}, norm_weight), p.input_fp32("norm_bias", {N}, norm_bias);
  p.objects<StepParams>("params", {drop_params});
  p.runs(LinearNormForward{.shape = s,
                           .dropout = drops.dropout,
                           .drop_path = drops.drop_path,
                           .eps = eps,
                           .dtype = dtype});
  return p;
}

// In an exact problem, the two columns of a pair have opposite gradients and otherwise equal
// values, so that the sums over a row are zeros and all other numbers small integers.
Problem norm_linear_backward_input(DType dtype, LinearShape s, bool with_dsum, bool accumulate,
                                   bool exact, const Drops& drops) {
  const auto [M, N, K] = s;
  const size_t n = size_t(M) * K;
  Problem p(dtype);
  p.exact = exact;
  const Values dout = p.data(size_t(M) * N), dsum = with_dsum ? p.data(n) : Values{};
  Values weight = p.data(size_t(N) * K, 0, 1 / std::sqrt(N)), sum = p.data(n, 0.5, 2);
  Values norm_weight = p.data_fp32(K);
  const oracle::LayerNormResult r =
      oracle::layernorm_forward(sum, {}, norm_weight, norm_weight, {M, K}, eps);
  Values mean = rounded(r.mean), rstd = rounded(r.rstd);
  if (exact) {
    mean = p.data(M);
    for (int m = 0; m < M; ++m) rstd[m] = 1 + m % 2;
    for (int k = 1; k < K; k += 2) {
      for (int row = 0; row < N; ++row) weight[at(row, K, k)] = -weight[at(row, K, k - 1)];
      for (int m = 0; m < M; ++m) sum[at(m, K, k)] = sum[at(m, K, k - 1)];
      norm_weight[k] = norm_weight[k - 1];
    }
  }
  Tensor d = product(
      M, K, N, dtype, [&](int m, int i) { return dout[at(m, N, i)]; },
      [&](int k, int i) { return weight[at(i, K, k)]; });
  for (Tracked& x : d) x = in_16_bits(x, dtype);
  const oracle::LayerNormGradient g =
      oracle::layernorm_backward(d, dsum, sum, mean, rstd, norm_weight, {M, K}, drops);
  p.output("dinp", {M, K}, g.dinp);
  if (drops.any()) p.output("dresidual", {M, K}, g.dresidual);
  p.gradient("dnorm_weight", {K}, g.dweight, accumulate);
  p.gradient("dnorm_bias", {K}, g.dbias, accumulate);
  p.input("dout", {M, N}, dout), p.input("sum", {M, K}, sum);
  if (with_dsum) p.input("dsum", {M, K}, dsum);
  p.input_fp32("mean", {M}, mean), p.input_fp32("rstd", {M}, rstd);
  p.input("weight", {N, K}, weight), p.input_fp32("norm_weight", {K}, norm_weight);
  p.objects<StepParams>("params", {drop_params});
  p.runs(NormLinearBackwardInput{.shape = s,
                                 .dropout = drops.dropout,
                                 .drop_path = drops.drop_path,
                                 .dtype = dtype,
                                 .accumulate = accumulate});
  return p;
}

// With the weight gradient, from the same dout.
Problem norm_linear_backward(DType dtype, LinearShape s) {
  const auto [M, N, K] = s;
  Problem p = norm_linear_backward_input(dtype, s, true, true, false, Drops{});
  const Values dout =
      decode(std::ranges::find(p.arguments, "dout", &Argument::name)->before, dtype);
  const Values inp = p.data(size_t(M) * K);
  p.gradient("dweight", {N, K},
             product(
                 N, K, M, dtype, [&](int n, int m) { return dout[at(m, N, n)]; },
                 [&](int k, int m) { return inp[at(m, K, k)]; }),
             true);
  p.input("inp", {M, K}, inp);
  p.runs(NormLinearBackward{.weight = {.shape = s, .dtype = dtype, .accumulate = true},
                            .input = {.shape = s, .dtype = dtype, .accumulate = true}});
  return p;
}

constexpr int exact_terms = 16;  // sums are at most 16 * 16 in magnitude, exact in 16 bits

KernelCases linear_norm_cases() {
  KernelCases cases;
  const auto add = [&](const LinearShape& s) {
    const std::string name = sizes({{"M", s.M}, {"N", s.N}, {"K", s.K}});
    const Drop drop{.image_rows = s.M % 5 ? 1 : 5, .layer = 5, .drop = 0.75f};
    const Drop half{.image_rows = drop.image_rows, .layer = 6, .drop = 0.5f};
    const Drops path{.drop_path = drop}, dropout{.dropout = half}, both{half, drop};
    for (const bool other : {false, true}) {
      cases.add("linear_norm_forward" + name + flag(other, "bias"), linear_norm_forward, s, other,
                Drops{});
      for (const bool accumulate : {false, true})
        cases.add("norm_linear_backward_input" + name + flag(other, "dsum") +
                      flag(accumulate, "accumulate"),
                  norm_linear_backward_input, s, other, accumulate, false, Drops{});
      if (s.N <= exact_terms && s.K % 2 == 0)
        cases.add("norm_linear_backward_input" + name + flag(other, "drop_path") + "_exact",
                  norm_linear_backward_input, s, true, other, true, other ? path : Drops{});
    }
    cases.add("linear_norm_forward" + name + "_drop_path", linear_norm_forward, s, true, path);
    cases.add("norm_linear_backward_input" + name + "_drop_path", norm_linear_backward_input, s,
              true, false, false, path);
    cases.add("linear_norm_forward" + name + "_dropout", linear_norm_forward, s, true, dropout);
    cases.add("norm_linear_backward_input" + name + "_dropout", norm_linear_backward_input, s, true,
              false, false, dropout);
    if (s.M > 100) return;
    cases.add("linear_norm_forward" + name + "_both", linear_norm_forward, s, true, both);
    cases.add("norm_linear_backward_input" + name + "_both", norm_linear_backward_input, s, true,
              false, false, both);
  };
  // Hopper's kernels compute rows of 192; their blocks take items of 128 such rows.
  for (const LinearShape& s : {LinearShape{1, 1, 1},
                               {3, 5, 7},
                               {10, 8, 2},
                               {17, 33, 40},
                               {5, 16, 200},
                               {4, 24, 1032},
                               {1, 8, 192},
                               {5, 7, 192},
                               {65, 16, 192},
                               {190, 24, 192},
                               {520, 8, 192},
                               {3, 192, 24},
                               {70, 192, 64}})
    add(s);
  const size_t large = cases.size();
  // More items than the stand-in has multiprocessors, and ViT-Tiny's sums.
  cases.add("norm_linear_backward_input_M900_N72_K192", norm_linear_backward_input,
            LinearShape{900, 72, 192}, true, true, false, Drops{});
  // On Hopper, the launch of the input gradient adds up the weight gradient's parts, both where it
  // computes the norm (K192) and where it doesn't.
  cases.add("norm_linear_backward_M1100_N72_K192", norm_linear_backward,
            LinearShape{1100, 72, 192});
  cases.add("norm_linear_backward_M1100_N72_K64", norm_linear_backward, LinearShape{1100, 72, 64});
  cases.add("norm_linear_backward_M5_N7_K192", norm_linear_backward, LinearShape{5, 7, 192});
  cases.add("linear_norm_forward_M900_N192_K72", linear_norm_forward, LinearShape{900, 192, 72},
            true, Drops{});
  cases.always(large);
  cases.add("norm_linear_backward_input_M33_N576_K192", norm_linear_backward_input,
            LinearShape{33, 576, 192}, true, false, false, Drops{});
  cases.add("norm_linear_backward_input_M33_N768_K192", norm_linear_backward_input,
            LinearShape{33, 768, 192}, true, false, false, Drops{});
  cases.add("linear_norm_forward_M33_N192_K192", linear_norm_forward, LinearShape{33, 192, 192},
            true, Drops{});
  cases.begin_sweep();
  for (const int M : {1, 2, 63, 64, 127, 128, 129}) add({M, 40, 192}), add({M, 192, 40});
  add({1970, 192, 192}), add({3, 1024, 4096});
  return cases;
}

[[maybe_unused]] const bool added = add_cases(layernorm_cases()) && add_cases(linear_norm_cases());

template <class... Ops>
bool refuse_wrong_drops() {
  return (refuses_wrong_drop<&Ops::dropout>() && ...) &&
         (refuses_wrong_drop<&Ops::drop_path>() && ...);
}
[[maybe_unused]] const bool refused =
    refuse_wrong_drops<LayerNormForward, LayerNormBackward, LinearNormForward,
                       NormLinearBackwardInput>();

}  // namespace
}  // namespace bv::test

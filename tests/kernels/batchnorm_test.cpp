// Batch norm: the oracle, its gradients against finite differences (over the batches of several
// processes, too), and the cases.
#include "tests/kernels/kernel_cases.h"

namespace bv::test {
namespace {

// ---- oracle -------------------------------------------------------------------------------------
// `residual` is the result of the residual's own batch norm, if it has one. An empty residual,
// running_mean, running_var or out stands for a null pointer.
namespace oracle {

struct BatchNormResult {
  Tensor out, mean, rstd, running_mean, running_var;
};

// Saved by forward for the backward passes.
struct BatchNormSaved {
  Values inp, mean, rstd, weight, bias;
};

struct BatchNormSums {
  Tensor dbias, dweight, g;
};

// Mean and variance over parts of the same size, as [2, C].
Tensor merged_moments(const Values& moments, int parts, int C) {
  Tensor merged(2 * size_t(C));
  for (int c = 0; c < C; ++c) {
    const auto at = [&](int part, int which) {
      return Tracked(moments[(size_t(part) * 2 + which) * C + c]);
    };
    Tracked mean = 0, within = 0, between = 0;
    for (int part = 0; part < parts; ++part) mean += at(part, 0), within += at(part, 1);
    mean = mean / Tracked(parts);
    for (int part = 0; part < parts; ++part) {
      const Tracked off = at(part, 0) - mean;
      between += off * off;
    }
    merged[c] = mean, merged[C + c] = within / Tracked(parts) + between / Tracked(parts);
  }
  return merged;
}

Tracked rstd_of(Tracked variance, double eps) { return Tracked(1) / sqrt(variance + Tracked(eps)); }

// out[i]
Tracked normalised(const Values& inp, const Tensor& residual, size_t i, Tracked mean, Tracked rstd,
                   double weight, double bias, bool relu) {
  Tracked y = (Tracked(inp[i]) - mean) * (rstd * Tracked(weight)) + Tracked(bias);
  if (!residual.empty()) y += residual[i];
  if (relu && y.value < 0) y.value = 0;
  return y;
}

// Gradients depend on the sign of y, so kernels.h fixes how to compute it: here likewise, in fp32.
bool positive(const BatchNormSaved& s, size_t i, size_t c) {
  const float scale = float(s.rstd[c]) * float(s.weight[c]);
  return std::fma(float(s.inp[i]) - float(s.mean[c]), scale, float(s.bias[c])) > 0;
}

Tracked xhat(const BatchNormSaved& s, size_t i, size_t c) {
  return (Tracked(s.inp[i]) - Tracked(s.mean[c])) * Tracked(s.rstd[c]);
}

BatchNormResult batchnorm_forward(const Values& inp, const Tensor& residual, const Values& moments,
                                  const Values& weight, const Values& bias,
                                  const Values& running_mean, const Values& running_var,
                                  const BatchNormForward& o) {
  const size_t C = size_t(o.shape.C);
  BatchNormResult r{Tensor(inp.size()), Tensor(C), Tensor(C), Tensor(running_mean.size()),
                    Tensor(running_var.size())};
  const Tensor merged = merged_moments(moments, o.parts, o.shape.C);
  for (size_t c = 0; c < C; ++c) {
    const Tracked mean = merged[c], variance = merged[C + c];
    r.mean[c] = mean, r.rstd[c] = rstd_of(variance, o.eps);
    for (size_t i = c; i < inp.size(); i += C)
      r.out[i] = normalised(inp, residual, i, mean, r.rstd[c], weight[c], bias[c], o.relu);
    if (running_mean.empty()) continue;
    const Tracked momentum = o.momentum, rest = Tracked(1) - momentum;
    const double n = double(o.shape.rows) * o.parts;
    const Tracked unbiased = Tracked(n) / Tracked(n - 1) * variance;
    const bool finite = std::isfinite(mean.value) && std::isfinite(variance.value);
    r.running_mean[c] =
        finite ? rest * Tracked(running_mean[c]) + momentum * mean : running_mean[c];
    r.running_var[c] =
        finite ? rest * Tracked(running_var[c]) + momentum * unbiased : running_var[c];
  }
  return r;
}

Tensor batchnorm_evaluate(const Values& inp, const Tensor& residual, const Values& running_mean,
                          const Values& running_var, const Values& weight, const Values& bias,
                          const BatchNormEvaluate& o) {
  Tensor out(inp.size());
  for (size_t i = 0; i < inp.size(); ++i) {
    const size_t c = i % size_t(o.shape.C);
    out[i] = normalised(inp, residual, i, running_mean[c], rstd_of(running_var[c], o.eps),
                        weight[c], bias[c], o.relu);
  }
  return out;
}

BatchNormSums batchnorm_backward_sums(const Values& dout, const Values& out,
                                      const BatchNormSaved& s, const BatchNormBackwardSums& o) {
  BatchNormSums sums{Tensor(size_t(o.shape.C)), Tensor(size_t(o.shape.C)), Tensor(dout.size())};
  for (size_t i = 0; i < dout.size(); ++i) {
    const size_t c = i % size_t(o.shape.C);
    if (o.relu && !(out.empty() ? positive(s, i, c) : out[i] > 0)) continue;
    sums.g[i] = dout[i];
    sums.dbias[c] += sums.g[i];
    sums.dweight[c] += sums.g[i] * xhat(s, i, c);
  }
  return sums;
}

Tensor batchnorm_backward(const Values& sums, const Values& dout, const BatchNormSaved& s,
                          const BatchNormBackward& o) {
  Tensor dinp(dout.size());
  const size_t C = size_t(o.shape.C);
  const Tracked n = double(o.shape.rows) * o.parts;
  for (size_t i = 0; i < dout.size(); ++i) {
    const size_t c = i % C;
    const Tracked g = o.relu && !positive(s, i, c) ? 0 : dout[i];
    const Tracked off = Tracked(sums[c]) / n + xhat(s, i, c) * (Tracked(sums[C + c]) / n);
    dinp[i] = Tracked(s.weight[c]) * Tracked(s.rstd[c]) * (g - off);
  }
  return dinp;
}

// ---- the oracle's gradients ---------------------------------------------------------------------
// The batch is split over `parts` processes; the loss is the sum over all of them.
void check_batchnorm(int parts, bool relu, bool with_residual) {
  TestValues random(15);
  const int rows = 6, C = 5;
  const size_t count = size_t(rows) * C;
  const BatchNormForward o{.shape = {rows, C}, .parts = parts, .eps = 0.1f, .relu = relu};
  const BatchNormBackwardSums o_sums{.shape = {rows, C}, .relu = relu};
  // With a residual, dout is g, to which relu has been applied.
  const BatchNormBackward o_back{
      .shape = {rows, C}, .parts = parts, .relu = relu && !with_residual};
  Values weight = random.normal(C, 1, 0.3), bias = random.normal(C);
  std::vector<Values> inp(parts), residual(parts), dout(parts);
  for (int part = 0; part < parts; ++part) {
    inp[part] = random.normal(count, 0.5 + part, 2), dout[part] = random.normal(count);
    if (with_residual) residual[part] = random.normal(count);
  }
  const auto forward = [&](int part) {
    Values moments;
    for (const Values& x : inp)
      for (const double m : values_of(column_moments(x, rows, C))) moments.push_back(m);
    return batchnorm_forward(inp[part], exactly(residual[part]), moments, weight, bias, {}, {}, o);
  };
  const auto loss = [&] {
    double sum = 0;
    for (int part = 0; part < parts; ++part) sum += dot(dout[part], forward(part).out);
    return sum;
  };
  std::vector<BatchNormSaved> saved;
  std::vector<BatchNormSums> sums;
  Values all(2 * size_t(C));
  for (int part = 0; part < parts; ++part) {
    const BatchNormResult r = forward(part);
    saved.push_back({inp[part], values_of(r.mean), values_of(r.rstd), weight, bias});
    sums.push_back(batchnorm_backward_sums(
        dout[part], relu && with_residual ? values_of(r.out) : Values{}, saved[part], o_sums));
    for (size_t c = 0; c < size_t(C); ++c)
      all[c] += sums[part].dbias[c].value, all[C + c] += sums[part].dweight[c].value;
  }
  check_gradient("bias", bias, exactly({all.begin(), all.begin() + C}), loss);
  check_gradient("weight", weight, exactly({all.begin() + C, all.end()}), loss);
  for (int part = 0; part < parts; ++part) {
    const Values g = with_residual ? values_of(sums[part].g) : dout[part];
    check_gradient("inp", inp[part], batchnorm_backward(all, g, saved[part], o_back), loss);
    if (with_residual) check_gradient("residual", residual[part], sums[part].g, loss);
  }
}

TEST(Oracle, BatchNorm) {
  for (const int parts : {1, 2})
    for (const bool relu : {false, true})
      for (const bool residual : {false, true}) check_batchnorm(parts, relu, residual);
}

TEST(Oracle, BatchNormOverPartsIsThatOverAllRows) {
  TestValues random(16);
  const Values all = random.normal(24, 3, 2);  // two parts of [4, 3]
  Values moments;
  for (const int from : {0, 12})
    for (const Tracked& m : column_moments({all.begin() + from, all.begin() + from + 12}, 4, 3))
      moments.push_back(m.value);
  const Tensor together = column_moments(all, 8, 3);
  EXPECT_TRUE(
      compare(values_of(merged_moments(moments, 2, 3)), values_of(together), Values(6, 1e-12))
          .ok());
  // Running statistics: momentum, and n / (n - 1) times the variance with n = 8.
  const BatchNormForward o{.shape = {4, 3}, .parts = 2, .eps = 1e-5f, .momentum = 0.25f};
  const BatchNormResult r = batchnorm_forward({all.begin(), all.begin() + 12}, {}, moments,
                                              Values(3, 1), Values(3), {1, 2, 3}, {4, 5, 6}, o);
  for (size_t c = 0; c < 3; ++c) {
    EXPECT_NEAR(r.running_mean[c].value, 0.75 * (1 + double(c)) + 0.25 * together[c].value, 1e-12);
    EXPECT_NEAR(r.running_var[c].value,
                0.75 * (4 + double(c)) + 0.25 * 8 / 7 * together[3 + c].value, 1e-12);
  }
  // Evaluation with the same statistics gives the same result.
  const Values both = values_of(together), part(all.begin(), all.begin() + 12);
  const Tensor evaluated =
      batchnorm_evaluate(part, {}, {both.begin(), both.begin() + 3}, {both.begin() + 3, both.end()},
                         Values(3, 1), Values(3), {.shape = {4, 3}, .eps = 1e-5f});
  EXPECT_TRUE(compare(values_of(evaluated), values_of(r.out), Values(12, 1e-12)).ok());
}

}  // namespace oracle

// ---- cases --------------------------------------------------------------------------------------
constexpr float eps = 1e-5f, momentum = 0.1f;
constexpr double far = 1000;  // from zero, with a deviation of about 1

size_t count(const RowsShape& s) { return size_t(s.rows) * size_t(s.C); }
std::string name_of(const RowsShape& s) { return sizes({{"rows", s.rows}, {"C", s.C}}); }

Values positive(Problem& p, size_t n) {
  Values values;
  for (size_t i = 0; i < n; ++i) values.push_back(float(0.25 + p.random.uniform()));
  return values;
}

// Adds the device's mask of out > 0; before the run, every bit is inverted.
void add_positive(Problem& p, RowsShape s, const Values& out) {
  std::vector<uint64_t> before = positive_words(out, s.C);
  for (uint64_t& word : before) word = ~word;
  p.changed_objects<uint64_t>("relu_mask", before, [](auto) { return std::string(); });
}
// The bits must match out as the device stored it.
std::string check_positive(const DeviceArguments& a, RowsShape s, DType dtype) {
  const Values out = decode(a.read("out"), dtype);
  const Bytes bytes = a.read("relu_mask");
  for (size_t i = 0; i < out.size(); ++i) {
    const size_t row = i / size_t(s.C), c = i % size_t(s.C);
    const size_t byte = (c / 64 * size_t(s.rows) + row) * 8 + c % 64 / 8;
    if (bool(bytes[byte] >> c % 8 & std::byte{1}) != (out[i] > 0))
      return "relu_mask's bit of " + index_name(i, Shape{s.rows, s.C}) +
             " is wrong, where out is " + std::to_string(out[i]);
  }
  return "";
}

// A batch; every channel has its own mean and deviation.
Values batch(Problem& p, RowsShape s, bool offset) {
  if (p.exact) return p.data(count(s));
  const Values mean = p.random.normal(size_t(s.C), offset ? far : 0, offset ? 5 : 2);
  const Values deviation = positive(p, size_t(s.C));
  Values inp = p.random.normal(count(s));
  for (size_t i = 0; i < inp.size(); ++i) {
    const size_t c = i % size_t(s.C);
    inp[i] = mean[c] + deviation[c] * inp[i];
  }
  return p.held(inp);
}

// The moments of `inp`, and random ones for the other parts.
Values moments_of(Problem& p, const Values& inp, RowsShape s, int parts) {
  const Values own = rounded(column_moments(inp, s.rows, s.C));
  const size_t C = size_t(s.C);
  Values all = own;
  for (int part = 1; part < parts; ++part) {
    const Values shift = p.random.normal(C), variance = positive(p, C);
    for (size_t c = 0; c < C; ++c) all.push_back(float(own[c] + shift[c]));
    all.insert(all.end(), variance.begin(), variance.end());
  }
  return all;
}

// ---- cases: forward -----------------------------------------------------------------------------
struct Forward {
  RowsShape s;
  int parts = 1;
  bool relu = false, residual = false, running = false, offset = false, exact = false;
  bool residual_norm = false;

  std::string name() const {
    return name_of(s) + sizes({{"parts", parts}}) + flag(relu, "relu") +
           flag(residual, "residual") + flag(residual_norm, "norm") + flag(running, "running") +
           flag(offset, "offset") + flag(exact, "exact");
  }
};

BatchNormForward operation(const Forward& f, DType dtype) {
  // In an exact problem the variance is 3/4, and rstd 1.
  return {.shape = f.s,
          .parts = f.parts,
          .eps = f.exact ? 0.25f : eps,
          .momentum = momentum,
          .relu = f.relu,
          .dtype = dtype};
}

// Adds a norm's arguments, with `prefix` before their names. x: the tensor that it normalises.
oracle::BatchNormResult add_norm(Problem& p, const Forward& f, const BatchNormForward& o,
                                 const std::string& prefix, const Values& x,
                                 const Tensor& residual) {
  const RowsShape s = f.s;
  const size_t C = size_t(s.C);
  Values moments = moments_of(p, x, s, f.parts);
  if (f.exact) {
    const Values mean = p.data_fp32(C);
    for (size_t i = 0; i < moments.size(); ++i) moments[i] = i / C % 2 ? 0.75 : mean[i % C];
  }
  const Values weight = p.data_fp32(C, 1), bias = p.data_fp32(C);
  const Values running_mean = f.running ? p.data_fp32(C) : Values{};
  const Values running_var = f.running ? positive(p, C) : Values{};
  const oracle::BatchNormResult r =
      oracle::batchnorm_forward(x, residual, moments, weight, bias, running_mean, running_var, o);
  p.output_fp32(prefix + "mean", {s.C}, r.mean), p.output_fp32(prefix + "rstd", {s.C}, r.rstd);
  if (f.running) {
    p.output_fp32(prefix + "running_mean", {s.C}, r.running_mean, running_mean);
    p.output_fp32(prefix + "running_var", {s.C}, r.running_var, running_var);
  }
  p.input_fp32(prefix + "moments", {f.parts, 2, s.C}, moments);
  p.input_fp32(prefix + "weight", {s.C}, weight), p.input_fp32(prefix + "bias", {s.C}, bias);
  return r;
}

Problem forward(DType dtype, Forward f) {
  Problem p(dtype);
  p.exact = f.exact, p.any_threads = true;
  const RowsShape s = f.s;
  const Values inp = batch(p, s, f.offset);
  Tensor added;
  const BatchNormForward o = operation(f, dtype);
  if (f.residual) {
    const Values residual = f.residual_norm ? batch(p, s, f.offset) : p.data(count(s));
    p.input("residual", {s.rows, s.C}, residual);
    BatchNormForward without_relu = o;
    without_relu.relu = false;
    added = f.residual_norm ? add_norm(p, f, without_relu, "residual_", residual, {}).out
                            : exactly(residual);
  }
  const oracle::BatchNormResult r = add_norm(p, f, o, "", inp, added);
  p.output("out", {s.rows, s.C}, r.out);
  if (f.relu && f.residual) {
    add_positive(p, s, values_of(r.out));
    p.check_together = [=](const DeviceArguments& a) { return check_positive(a, s, dtype); };
  }
  p.input("inp", {s.rows, s.C}, inp);
  p.runs(o);
  return p;
}

// Adds outputs that only check_together checks.
void unjudged(Problem& p, const Shape& shape, DType dtype,
              std::initializer_list<const char*> names) {
  size_t bytes = size_of(dtype);
  for (const int extent : shape) bytes *= size_t(extent);
  for (const char* name : names)
    p.arguments.push_back({.name = name,
                           .shape = shape,
                           .dtype = dtype,
                           .bytes = bytes,
                           .before = {},
                           .expected = {},
                           .check = [](auto) { return std::string(); }});
}

// NaN propagates, and moments that aren't finite don't change the running statistics.
Problem forward_not_finite(DType dtype, Forward f) {
  Problem p(dtype);
  const RowsShape s = f.s;
  const size_t C = size_t(s.C);
  Values inp = batch(p, s, false), moments = moments_of(p, inp, s, f.parts);
  // In the last part, whether there is one or several.
  const size_t mean = 2 * C * size_t(f.parts - 1), variance = mean + C;
  moments[mean + 0] = NAN, moments[variance + 1] = NAN;
  moments[mean + 2] = -INFINITY, moments[variance + 3] = INFINITY;
  inp[4] = NAN;
  const Values weight = p.data_fp32(C, 1), bias = p.data_fp32(C);
  const Values running_mean = p.data_fp32(C), running_var = positive(p, C);
  const BatchNormForward o = operation(f, dtype);
  const oracle::BatchNormResult r =
      oracle::batchnorm_forward(inp, {}, moments, weight, bias, running_mean, running_var, o);
  unjudged(p, {s.rows, s.C}, dtype, {"out"}), unjudged(p, {s.C}, DType::fp32, {"mean", "rstd"});
  p.output_fp32("running_mean", {s.C}, r.running_mean, running_mean);
  p.output_fp32("running_var", {s.C}, r.running_var, running_var);
  p.input("inp", {s.rows, s.C}, inp), p.input_fp32("moments", {f.parts, 2, s.C}, moments);
  p.input_fp32("weight", {s.C}, weight), p.input_fp32("bias", {s.C}, bias);
  p.runs(o);
  p.check_together = [=](const DeviceArguments& a) {
    const Values out = decode(a.read("out"), dtype);
    for (size_t i = 0; i < out.size(); ++i) {
      const size_t c = i % C;
      if (c == 2 || c == 3) continue;  // infinite moments
      const bool nan = c < 2 || i == 4;
      if (nan ? !std::isnan(out[i])
              : !(std::fabs(out[i] - r.out[i].value) <= tolerance(r.out[i], dtype)))
        return "out " + index_name(i, Shape{s.rows, s.C}) + " is " + std::to_string(out[i]);
    }
    return std::string();
  };
  return p;
}

// place: the argument that out overwrites, or "".
Problem evaluate(DType dtype, RowsShape s, bool relu, bool with_residual, const std::string& place,
                 bool exact) {
  Problem p(dtype);
  p.exact = exact, p.any_threads = true;
  const size_t C = size_t(s.C);
  const Values inp = batch(p, s, false), residual = with_residual ? p.data(count(s)) : Values{};
  const Values mean = p.data_fp32(C), variance = exact ? Values(C, 0.75) : positive(p, C);
  const Values weight = p.data_fp32(C, 1), bias = p.data_fp32(C);
  const BatchNormEvaluate o{.shape = s, .eps = exact ? 0.25f : eps, .relu = relu, .dtype = dtype};
  p.output("out", {s.rows, s.C},
           oracle::batchnorm_evaluate(inp, exactly(residual), mean, variance, weight, bias, o),
           place == "inp"        ? inp
           : place == "residual" ? residual
                                 : Values{});
  if (place != "inp") p.input("inp", {s.rows, s.C}, inp);
  if (with_residual && place != "residual") p.input("residual", {s.rows, s.C}, residual);
  p.input_fp32("running_mean", {s.C}, mean), p.input_fp32("running_var", {s.C}, variance);
  p.input_fp32("weight", {s.C}, weight), p.input_fp32("bias", {s.C}, bias);
  p.runs(o, {{place, "out"}});
  return p;
}

// ---- cases: backward ----------------------------------------------------------------------------
// near_zero: most y are only a product's rounding error, of either sign, which fma keeps.
enum class Kind { normal, offset, near_zero, exact };
const char* const kind_names[] = {"", "_offset", "_near_zero", "_exact"};

oracle::BatchNormSaved saved(Problem& p, RowsShape s, Kind kind) {
  p.exact = kind == Kind::exact;
  const size_t C = size_t(s.C);
  oracle::BatchNormSaved v;
  v.inp = batch(p, s, kind == Kind::offset);
  v.weight = p.data_fp32(C, 1), v.bias = p.data_fp32(C);
  if (kind == Kind::exact) {
    v.mean = p.data_fp32(C);
    for (size_t c = 0; c < C; ++c) v.rstd.push_back(std::ldexp(1, int(c % 3) - 1));
    return v;
  }
  const Values moments = rounded(column_moments(v.inp, s.rows, s.C));
  v.mean.assign(moments.begin(), moments.begin() + s.C);
  for (size_t c = 0; c < C; ++c) v.rstd.push_back(float(1 / std::sqrt(moments[C + c] + eps)));
  if (kind != Kind::near_zero) return v;
  for (size_t c = 0; c < C; ++c) {
    const double scale = float(v.rstd[c] * v.weight[c]);
    v.bias[c] = float(-scale * float(v.inp[c] - v.mean[c]));
  }
  for (size_t i = C; i < v.inp.size(); ++i)
    if (p.random.below(4)) v.inp[i] = v.inp[i % C];
  return v;
}

// Adds all saved tensors except the bias, which only affects the sign of y.
void add_norm(Problem& p, RowsShape s, const oracle::BatchNormSaved& v, const std::string& inp,
              const std::string& prefix) {
  p.input(inp, {s.rows, s.C}, v.inp);
  p.input_fp32(prefix + "mean", {s.C}, v.mean), p.input_fp32(prefix + "rstd", {s.C}, v.rstd);
  p.input_fp32(prefix + "weight", {s.C}, v.weight);
}
void add_saved(Problem& p, RowsShape s, const oracle::BatchNormSaved& v) {
  add_norm(p, s, v, "inp", "");
  p.input_fp32("bias", {s.C}, v.bias);
}

struct Sums {
  RowsShape s;
  bool relu, residual;  // with both, `relu_mask` is given
  enum G { none, wanted, in_place } g;
  bool accumulate = false;
  Kind kind = Kind::normal;

  std::string name() const {
    const char* gs[] = {"", "_g", "_g_in_place"};
    return name_of(s) + flag(relu, "relu") + flag(residual, "residual") + gs[g] +
           flag(accumulate, "accumulate") + kind_names[int(kind)];
  }
};

Problem backward_sums(DType dtype, Sums t) {
  Problem p(dtype);
  const RowsShape s = t.s;
  const oracle::BatchNormSaved v = saved(p, s, t.kind);
  const Values dout = p.data(count(s));
  Values out;
  if (t.relu && t.residual)
    for (const double y : p.data(count(s))) out.push_back(std::max(y, 0.0));
  const BatchNormBackwardSums o{
      .shape = s, .relu = t.relu, .dtype = dtype, .accumulate = t.accumulate};
  const oracle::BatchNormSums r = oracle::batchnorm_backward_sums(dout, out, v, o);
  Tensor sums = r.dbias;
  sums.insert(sums.end(), r.dweight.begin(), r.dweight.end());
  p.output_fp32("sums", {2, s.C}, sums);
  p.gradient("dweight", {s.C}, r.dweight, t.accumulate);
  p.gradient("dbias", {s.C}, r.dbias, t.accumulate);
  const bool in_place = t.g == Sums::in_place;
  if (t.g != Sums::none) p.output("g", {s.rows, s.C}, r.g, in_place ? dout : Values{});
  if (!in_place) p.input("dout", {s.rows, s.C}, dout);
  if (!out.empty()) p.objects("relu_mask", positive_words(out, s.C));
  add_saved(p, s, v);
  p.runs(o, {{"dout", in_place ? "g" : "dout"}});
  return p;
}

struct Backward {
  RowsShape s;
  int parts;
  bool relu;
  enum Place { none, dinp, residual_dinp } place = none;  // which of them overwrites dout
  Kind kind = Kind::normal;
  bool residual_norm = false;

  std::string name() const {
    const char* places[] = {"", "_in_place", "_in_place_of_residual"};
    return name_of(s) + sizes({{"parts", parts}}) + flag(relu, "relu") +
           flag(residual_norm, "residual_norm") + places[place] + kind_names[int(kind)];
  }
};

Problem backward(DType dtype, Backward t) {
  Problem p(dtype);
  p.any_threads = true;
  const RowsShape s = t.s;
  const oracle::BatchNormSaved v = saved(p, s, t.kind);
  const Values dout = p.data(count(s));
  // Random numbers as large as sums over that many rows.
  const auto sums_of = [&] {
    return p.data_fp32(2 * size_t(s.C), 0, std::sqrt(double(s.rows) * t.parts));
  };
  const Values sums = sums_of();
  const BatchNormBackward o{.shape = s, .parts = t.parts, .relu = t.relu, .dtype = dtype};
  p.output("dinp", {s.rows, s.C}, oracle::batchnorm_backward(sums, dout, v, o),
           t.place == Backward::dinp ? dout : Values{});
  p.input_fp32("sums", {2, s.C}, sums);
  add_saved(p, s, v);
  if (t.residual_norm) {
    const oracle::BatchNormSaved other = saved(p, s, t.kind);
    const Values residual_sums = sums_of();
    p.output("residual_dinp", {s.rows, s.C},
             oracle::batchnorm_backward(residual_sums, dout, other, o),
             t.place == Backward::residual_dinp ? dout : Values{});
    p.input_fp32("residual_sums", {2, s.C}, residual_sums);
    add_norm(p, s, other, "residual", "residual_");
  }
  if (t.place == Backward::none) p.input("dout", {s.rows, s.C}, dout);
  const char* places[] = {"dout", "dinp", "residual_dinp"};
  p.runs(o, {{"dout", places[t.place]}});
  return p;
}

// Forward, then backward from what it saved: the gradient passes exactly where out is positive.
// Most y are as near to zero as in Kind::near_zero; residuals include zeros of both signs, numbers
// that 16 bits round to zero, and NaN.
Problem signs(DType dtype, RowsShape s, bool with_residual) {
  Problem p(dtype);
  const oracle::BatchNormSaved v = saved(p, s, Kind::near_zero);
  // Moments that give this mean and rstd, except for rounding.
  Values moments = v.mean;
  for (const double rstd : v.rstd) moments.push_back(float(1 / (rstd * rstd) - eps));
  const Values dout(count(s), 1);
  unjudged(p, {s.rows, s.C}, dtype, {"out", "g"}), unjudged(p, {2, s.C}, DType::fp32, {"sums"});
  unjudged(p, {s.C}, DType::fp32, {"mean", "rstd", "dweight", "dbias"});
  p.input("inp", {s.rows, s.C}, v.inp), p.input_fp32("moments", {1, 2, s.C}, moments);
  p.input("dout", {s.rows, s.C}, dout);
  if (with_residual) {
    add_positive(p, s, v.inp);
    const double few[] = {0.0, -0.0, 1, -1, 3e-8, -3e-8, 1e-41, NAN};
    Values residual;
    for (size_t i = 0; i < count(s); ++i) residual.push_back(few[p.random.below(8)]);
    p.input("residual", {s.rows, s.C}, p.held(residual));
  }
  p.input_fp32("weight", {s.C}, v.weight), p.input_fp32("bias", {s.C}, v.bias);
  const BatchNormForward forward = operation({.s = s, .relu = true}, dtype);
  const BatchNormBackwardSums backward{.shape = s, .relu = true, .dtype = dtype};
  p.run = [=](Kernels& k, DeviceArguments& a) {
    launch(k, a, bound(forward, a, {}));
    launch(k, a, bound(backward, a, {}));
  };
  p.check_together = [=](const DeviceArguments& a) {
    const Values out = decode(a.read("out"), dtype), g = decode(a.read("g"), dtype);
    for (size_t i = 0; i < out.size(); ++i) {
      // The output was positive before it underflowed; backward computes it again.
      const bool underflow = dtype == DType::fp16 && out[i] == 0 && !with_residual;
      if (!(g[i] == (out[i] > 0 ? 1 : 0)) && !underflow)
        return "g " + index_name(i, Shape{s.rows, s.C}) + " is " + std::to_string(g[i]) +
               ", where out is " + std::to_string(out[i]);
    }
    return with_residual ? check_positive(a, s, dtype) : "";
  };
  return p;
}

KernelCases batchnorm_cases() {
  KernelCases cases;
  const auto add_forward = [&](const Forward& f) {
    cases.add("batchnorm_forward" + f.name(), forward, f);
  };
  const auto add_evaluate = [&](RowsShape s, bool relu, bool residual, const std::string& place,
                                bool exact) {
    cases.add("batchnorm_evaluate" + name_of(s) + flag(relu, "relu") + flag(residual, "residual") +
                  flag(!place.empty(), "in_place_of_") + place + flag(exact, "exact"),
              evaluate, s, relu, residual, place, exact);
  };
  const auto add_sums = [&](const Sums& t) {
    cases.add("batchnorm_backward_sums" + t.name(), backward_sums, t);
  };
  const auto add_backward = [&](const Backward& t) {
    cases.add("batchnorm_backward" + t.name(), backward, t);
  };
  // Every path at each size; options that hardly change the path take turns.
  int i = 0;
  const auto add = [&](RowsShape s) {
    for (const bool relu : {false, true})
      for (const bool residual : {false, true}) {
        Forward f{s, 1 + i % 3, relu, residual, i % 4 != 0, i % 5 == 0};
        f.running &= s.rows * f.parts > 1;  // a single number has no unbiased variance
        add_forward(f);
        if (residual) {
          f.residual_norm = true;
          add_forward(f);
        }
        const char* places[] = {"", "inp", residual ? "residual" : ""};
        add_evaluate(s, relu, residual, places[i % 3], false);
        ++i;
      }
    int j = 0;
    for (const Sums& t : {Sums{s, false, false, Sums::none},
                          {s, true, false, Sums::none},
                          {s, true, false, Sums::wanted},
                          {s, true, true, Sums::wanted},
                          {s, true, true, Sums::in_place}}) {
      Sums of_kind = t;
      of_kind.accumulate = (i + j) % 2, of_kind.kind = (i + j) % 3 ? Kind::normal : Kind::offset;
      add_sums(of_kind);
      ++j;
    }
    for (const bool relu : {false, true}) {
      Backward t{s, 1 + i % 3, relu, Backward::Place(i % 2), i % 5 ? Kind::normal : Kind::offset};
      add_backward(t);
      ++i;
      if (relu) continue;
      t.residual_norm = true, t.place = Backward::Place(i % 3);
      add_backward(t);
    }
  };
  for (const int rows : {1, 2, 7, 100, 1000})
    for (const int C : {1, 3, 8, 17, 64, 100, 512, 2048})
      if (rows * C <= 100000) add({rows, C});
  for (const RowsShape s : {RowsShape{3000, 40}, {30000, 3}}) add(s);
  // The number of rows is a power of two, so that dividing by it is exact.
  for (const RowsShape s : {RowsShape{8, 1}, {16, 5}, {4, 64}, {128, 24}, {2, 520}}) {
    for (const bool relu : {false, true}) {
      for (const bool residual : {false, true}) {
        Forward f{.s = s, .parts = 1 + relu, .relu = relu, .residual = residual, .exact = true};
        add_forward(f);
        f.residual_norm = residual;
        if (residual) add_forward(f);
        add_evaluate(s, relu, residual, "", true);
      }
      add_sums({s, relu, false, relu ? Sums::wanted : Sums::none, relu, Kind::exact});
      add_backward({s, 1 + relu, relu, Backward::none, Kind::exact, !relu});
    }
    add_sums({s, true, true, Sums::wanted, false, Kind::exact});
  }
  for (const RowsShape s : {RowsShape{3, 8}, {20, 17}, {50, 64}, {300, 100}}) {
    for (const bool residual : {false, true})
      cases.add("batchnorm_signs" + name_of(s) + flag(residual, "residual"), signs, s, residual);
    add_sums({s, true, false, Sums::wanted, false, Kind::near_zero});
    add_backward({s, 1, true, Backward::none, Kind::near_zero});
    for (const int parts : {1, 3}) {
      const Forward f{.s = s, .parts = parts, .relu = parts == 1, .running = true};
      cases.add("batchnorm_forward_not_finite" + f.name(), forward_not_finite, f);
    }
  }
  cases.begin_sweep();
  for (const int C : sweep_of_sizes())
    for (const int rows : {5, 67}) add({rows, C});
  for (const int rows : sweep_of_sizes())
    for (const int C : {9, 72})
      if (rows != 5) add({rows, C});
  return cases;
}

[[maybe_unused]] const bool added = add_cases(batchnorm_cases());

// Refused: one of the running statistics without the other, a mask without relu, and a residual's
// norm without a residual.
using Op = BatchNormForward;
[[maybe_unused]] const bool refused = refuses<Op>({
    {"running_var", [](Op& o) { o.norm.running_mean = o.norm.mean, o.norm.running_var = nullptr; }},
    {"running_mean",
     [](Op& o) { o.norm.running_mean = nullptr, o.norm.running_var = o.norm.mean; }},
    {"relu_mask",
     [](Op& o) { o.relu_mask = reinterpret_cast<uint64_t*>(o.norm.mean), o.relu = false; }},
    {"residual_norm",
     [](Op& o) { o.residual_norm = o.norm, o.residual = nullptr, o.relu_mask = nullptr; }},
});

}  // namespace
}  // namespace bv::test

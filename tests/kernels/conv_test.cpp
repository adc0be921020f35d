// Convolution: the oracle, its gradients against finite differences, and the cases.
#include "bench/recorded_model.h"
#include "engine/options/model_config.h"
#include "tests/kernels/kernel_cases.h"

namespace bv::test {
namespace {

// ---- oracle -------------------------------------------------------------------------------------
namespace oracle {

// The first channel of k's group.
int first(int k, const ConvShape& o) { return k / (o.K / o.groups) * (o.C / o.groups); }

// The formulas of kernels.h. The innermost loop is over c, whose elements are neighbours in memory.
// Loops over k or rows of dinp are parallel, since each iteration writes different elements.
Values forward(const Values& inp, const Values& weight, const ConvShape& o) {
  Values out(size_t(o.out_count()));
  const int P = o.P(), Q = o.Q(), C = o.C / o.groups;
#pragma omp parallel for
  for (int k = 0; k < o.K; ++k)
    for (int n = 0; n < o.N; ++n)
      for (int p = 0; p < P; ++p)
        for (int q = 0; q < Q; ++q) {
          double sum = 0;
          for (int r = 0; r < o.R; ++r)
            for (int s = 0; s < o.S; ++s) {
              const int h = p * o.stride - o.padding + r, w = q * o.stride - o.padding + s;
              if (h < 0 || h >= o.H || w < 0 || w >= o.W) continue;
              const double* x = &inp[((size_t(n) * o.H + h) * o.W + w) * o.C + first(k, o)];
              const double* f = &weight[((size_t(k) * o.R + r) * o.S + s) * C];
#pragma omp simd reduction(+ : sum)
              for (int c = 0; c < C; ++c) sum += x[c] * f[c];
            }
          out[((size_t(n) * P + p) * Q + q) * o.K + k] = sum;
        }
  return out;
}

Values backward_input(const Values& dout, const Values& weight, const ConvShape& o) {
  Values dinp(size_t(o.inp_count()));
  const int P = o.P(), Q = o.Q(), C = o.C / o.groups;
#pragma omp parallel for
  for (int nh = 0; nh < o.N * o.H; ++nh)
    for (int k = 0; k < o.K; ++k)
      for (int r = 0; r < o.R; ++r)
        for (int s = 0; s < o.S; ++s)
          for (int q = 0; q < Q; ++q) {
            const int y = nh % o.H + o.padding - r;  // p stride
            const int w = q * o.stride - o.padding + s;
            if (y < 0 || y % o.stride != 0 || y / o.stride >= P || w < 0 || w >= o.W) continue;
            const double d = dout[((size_t(nh / o.H) * P + y / o.stride) * Q + q) * o.K + k];
            const double* f = &weight[((size_t(k) * o.R + r) * o.S + s) * C];
            double* dx = &dinp[(size_t(nh) * o.W + w) * o.C + first(k, o)];
            for (int c = 0; c < C; ++c) dx[c] += d * f[c];
          }
  return dinp;
}

Values backward_weight(const Values& dout, const Values& inp, const ConvShape& o) {
  Values dweight(size_t(o.weight_count()));
  const int P = o.P(), Q = o.Q(), C = o.C / o.groups;
#pragma omp parallel for
  for (int k = 0; k < o.K; ++k)
    for (int r = 0; r < o.R; ++r)
      for (int s = 0; s < o.S; ++s)
        for (int n = 0; n < o.N; ++n)
          for (int p = 0; p < P; ++p)
            for (int q = 0; q < Q; ++q) {
              const int h = p * o.stride - o.padding + r, w = q * o.stride - o.padding + s;
              if (h < 0 || h >= o.H || w < 0 || w >= o.W) continue;
              const double d = dout[((size_t(n) * P + p) * Q + q) * o.K + k];
              const double* x = &inp[((size_t(n) * o.H + h) * o.W + w) * o.C + first(k, o)];
              double* df = &dweight[((size_t(k) * o.R + r) * o.S + s) * C];
              for (int c = 0; c < C; ++c) df[c] += d * x[c];
            }
  return dweight;
}

Values squared(Values values) {
  for (double& v : values) v *= v;
  return values;
}

// A sum of n products, each product and each partial sum rounded to fp32. The order in which a
// device adds is unknown; the mean over all orders of the sum of the squared partial sums is
//   (n + 1) (squares / 6 + sum^2 / 3),   squares = the sum of the squared products.
// A single order may be far from this mean if the sum is small: hence 1/2 instead of 1/6, the
// factor if the sum is unknown.
Tracked sum_of_products(double sum, double squares, double n, DType dtype) {
  constexpr double r = Tracked::rounding;
  return on_tensor_cores({sum, r * r * (squares + (n + 1) * (squares / 2 + sum * sum / 3))}, n,
                         dtype);
}

// The same convolution with a single channel: applied to ones, it counts the products in each sum.
ConvShape one_channel(ConvShape o) {
  o.C = o.K = o.groups = 1;
  return o;
}
Values ones(double count) { return Values(size_t(count), 1); }

Tensor conv_forward(const Values& inp, const Values& weight, const ConvShape& o,
                    DType dtype = DType::fp32) {
  const Values sum = forward(inp, weight, o);
  const Values squares = forward(squared(inp), squared(weight), o);
  const ConvShape one = one_channel(o);
  const Values taps = forward(ones(one.inp_count()), ones(one.weight_count()), one);
  Tensor out(sum.size());
  for (size_t i = 0; i < out.size(); ++i)
    out[i] = sum_of_products(sum[i], squares[i], taps[i / o.K] * (o.C / o.groups), dtype);
  return out;
}

// add may be empty.
Tensor conv_backward_input(const Values& dout, const Values& weight, const Values& add,
                           const ConvShape& o, DType dtype = DType::fp32) {
  const Values sum = backward_input(dout, weight, o);
  const Values squares = backward_input(squared(dout), squared(weight), o);
  const ConvShape one = one_channel(o);
  const Values taps = backward_input(ones(one.out_count()), ones(one.weight_count()), one);
  Tensor dinp(sum.size());
  for (size_t i = 0; i < dinp.size(); ++i) {
    // One more term, anywhere in the order.
    const double more = add.empty() ? 0 : add[i];
    dinp[i] = sum_of_products(sum[i] + more, squares[i] + more * more,
                              taps[i / o.C] * (o.K / o.groups) + !add.empty(), dtype);
  }
  return dinp;
}

Tensor conv_backward_weight(const Values& dout, const Values& inp, const ConvShape& o,
                            DType dtype = DType::fp32) {
  const Values sum = backward_weight(dout, inp, o);
  const Values squares = backward_weight(squared(dout), squared(inp), o);
  const ConvShape one = one_channel(o);
  const Values taps = backward_weight(ones(one.out_count()), ones(one.inp_count()), one);
  Tensor dweight(sum.size());
  for (size_t i = 0; i < dweight.size(); ++i)
    dweight[i] =
        sum_of_products(sum[i], squares[i], taps[i / (o.C / o.groups) % taps.size()], dtype);
  return dweight;
}

// The batch norm whose out the convolution reads, as its forward saved it.
struct Norm {
  Values inp, mean, rstd, weight, bias;
  Values out;  // empty: no residual, so that the sign of y is recomputed
  bool relu;
};

// Whether g is dinp and not 0: true if y > 0 or without relu. kernels.h fixes how to compute the
// sign of y: here likewise, in fp32.
bool passes(const Norm& n, size_t i) {
  const size_t c = i % n.mean.size();
  if (!n.relu) return true;
  if (!n.out.empty()) return n.out[i] > 0;
  const float scale = float(n.rstd[c]) * float(n.weight[c]);
  return std::fma(float(n.inp[i]) - float(n.mean[c]), scale, float(n.bias[c])) > 0;
}

// The sums [2, C] of dinp as it is stored.
Tensor norm_sums(const Values& dinp, const Norm& n) {
  const size_t C = n.mean.size();
  Tensor sums(2 * C);
  for (size_t i = 0; i < dinp.size(); ++i) {
    if (!passes(n, i)) continue;
    const size_t c = i % C;
    sums[c] += Tracked(dinp[i]);
    sums[C + c] +=
        Tracked(dinp[i]) * ((Tracked(n.inp[i]) - Tracked(n.mean[c])) * Tracked(n.rstd[c]));
  }
  return sums;
}

// ---- the oracle's gradients ---------------------------------------------------------------------
TEST(Oracle, Convolution) {
  TestValues random(12);
  for (const ConvShape& s : {ConvShape{1, 1, 1, 1, 1, 1, 1, 1, 0},
                             {2, 5, 6, 3, 4, 3, 3, 1, 1},
                             {2, 7, 5, 3, 20, 3, 3, 2, 1},
                             {1, 9, 8, 4, 6, 3, 2, 2, 0, 2},
                             {2, 4, 3, 8, 8, 3, 3, 1, 1, 4},
                             {1, 5, 4, 3, 6, 1, 1, 2, 1, 3},
                             {1, 8, 9, 2, 3, 7, 7, 3, 3},
                             {1, 2, 1, 140, 3, 1, 3, 1, 2}}) {
    Values inp = random.normal(size_t(s.inp_count())),
           weight = random.normal(size_t(s.weight_count()));
    const Values add = random.normal(inp.size()), dout = random.normal(size_t(s.out_count()));
    const auto values = [&] { return conv_forward(inp, weight, s); };
    const auto loss = [&] { return dot(dout, values()) + dot(add, exactly(inp)); };
    check_gradient("inp", inp, conv_backward_input(dout, weight, add, s), loss);
    check_gradient("weight", weight, conv_backward_weight(dout, inp, s), loss);
  }
}

// Gradients of conv(relu(norm(x) + residual)) with respect to the norm's weight and bias and the
// residual.
TEST(Oracle, ConvolutionAfterBatchNorm) {
  TestValues random(14);
  const ConvShape s{2, 5, 6, 3, 4, 3, 3, 2, 1};
  const size_t count = size_t(s.inp_count()), C = size_t(s.C);
  for (const bool relu : {false, true}) {
    Norm n{.inp = random.normal(count),
           .mean = random.normal(C),
           .rstd = {.5, 1, 2},
           .weight = random.normal(C),
           .bias = random.normal(C),
           .out = Values(count),
           .relu = relu};
    Values residual = random.normal(count);
    const Values weight = random.normal(size_t(s.weight_count())),
                 dout = random.normal(size_t(s.out_count()));
    const auto loss = [&] {
      for (size_t i = 0; i < count; ++i) {
        const size_t c = i % C;
        const double y = (n.inp[i] - n.mean[c]) * n.rstd[c] * n.weight[c] + n.bias[c] + residual[i];
        n.out[i] = relu ? std::max(y, 0.0) : y;
      }
      return dot(dout, conv_forward(n.out, weight, s));
    };
    loss();
    Values g = values_of(conv_backward_input(dout, weight, {}, s));
    const Tensor sums = norm_sums(g, n);
    for (size_t i = 0; i < count; ++i)
      if (!passes(n, i)) g[i] = 0;
    const auto half = sums.begin() + ptrdiff_t(C);
    check_gradient("bias", n.bias, {sums.begin(), half}, loss);
    check_gradient("weight", n.weight, {half, sums.end()}, loss);
    check_gradient("residual", residual, exactly(g), loss);
  }
}

TEST(Oracle, ConvolutionExpectsLittleMoreErrorThanRoundingEachSumMakes) {
  TestValues random(13);
  const ConvShape s{1, 7, 6, 40, 5, 3, 3, 1, 1};
  for (const double mean : {0.0, 2.0}) {
    const Values inp = random.normal(size_t(s.inp_count()), mean);
    const Values weight = random.normal(size_t(s.weight_count()), mean);
    const Tensor out = conv_forward(inp, weight, s);
    double predicted = 0, tracked = 0;
    for (size_t i = 0; i < out.size(); ++i) {
      const int k = int(i) % s.K, p = int(i) / s.K / s.Q(), q = int(i) / s.K % s.Q();
      Tracked sum = 0;
      for (int r = 0; r < 3; ++r)
        for (int t = 0; t < 3; ++t)
          for (int c = 0; c < s.C; ++c)
            if (const int h = p + r - 1, w = q + t - 1; h >= 0 && h < s.H && w >= 0 && w < s.W)
              sum += Tracked(inp[(size_t(h) * s.W + w) * s.C + c]) *
                     Tracked(weight[((size_t(k) * 3 + r) * 3 + t) * s.C + c]);
      predicted += out[i].variance, tracked += sum.variance;
    }
    EXPECT_GT(predicted / tracked, 1);
    EXPECT_LT(predicted / tracked, 2);
  }
}

}  // namespace oracle

// ---- cases --------------------------------------------------------------------------------------
std::string name_of(const ConvShape& s) {
  return sizes(
             {{"N", s.N}, {"H", s.H}, {"W", s.W}, {"C", s.C}, {"K", s.K}, {"R", s.R}, {"S", s.S}}) +
         sizes({{"stride", s.stride}, {"padding", s.padding}, {"groups", s.groups}});
}

Shape inp_of(const ConvShape& s) { return {s.N, s.H, s.W, s.C}; }
Shape out_of(const ConvShape& s) { return {s.N, s.P(), s.Q(), s.K}; }
Shape weight_of(const ConvShape& s) { return {s.K, s.R, s.S, s.C / s.groups}; }

// Like Problem::data, but large tensors repeat a few thousand numbers, which is much faster.
Values data(Problem& p, double count, double mean = 0) {
  const size_t n = size_t(count), few = 4096;
  if (n < 4 * few) return p.data(n, mean);
  const Values numbers = p.data(few, mean);
  Values values(n);
  for (double& v : values) v = numbers[p.random.word() % few];
  return values;
}

// The moments must be those of out as the device stored it.
std::string check_moments(const DeviceArguments& a, const ConvShape& s, DType dtype) {
  const int rows = s.N * s.P() * s.Q();
  const Tensor known = column_moments(decode(a.read("out"), dtype), rows, s.K);
  Values expected, allowed;
  for (const Tracked& m : known)
    expected.push_back(m.value), allowed.push_back(tolerance(m, DType::fp32));
  const Comparison c = compare(decode(a.read("batch_stats"), DType::fp32), expected, allowed);
  return c.ok() ? "" : "moments differ from those of the stored out: " + c.describe(Shape{2, s.K});
}

enum class Moments { none, wanted, of_offset };  // of_offset: out is far from zero

Problem forward(DType dtype, ConvShape s, Moments moments, bool exact) {
  Problem p(dtype);
  p.exact = exact;
  const bool offset = moments == Moments::of_offset;
  const Values inp = data(p, s.inp_count(), offset ? 8 : 0);
  const Values weight = data(p, s.weight_count(), offset ? 2 : 0);
  p.output("out", out_of(s), oracle::conv_forward(inp, weight, s, dtype));
  if (moments != Moments::none) {
    p.arguments.push_back({.name = "batch_stats",
                           .shape = {2, s.K},
                           .bytes = 2 * sizeof(float) * size_t(s.K),
                           .before = {},
                           .expected = {},
                           .check = [](auto) { return std::string(); }});  // checked with out
    p.check_together = [=](const DeviceArguments& a) { return check_moments(a, s, dtype); };
  }
  p.input("inp", inp_of(s), inp), p.input("weight", weight_of(s), weight);
  p.runs(ConvForward{.shape = s, .dtype = dtype});
  return p;
}

enum class Add { none, given, in_place };

// Adds the weight gradient, from the same dout, to a problem of the input gradient.
ConvBackwardWeight add_weight_gradient(Problem& p, const Values& dout, const ConvShape& s,
                                       bool accumulate) {
  const Values inp = data(p, s.inp_count());
  p.gradient("dweight", weight_of(s), oracle::conv_backward_weight(dout, inp, s, p.dtype),
             accumulate);
  p.input("inp", inp_of(s), inp);
  return {.shape = s, .dtype = p.dtype, .accumulate = accumulate};
}
enum class Gradients { input, both };

Problem backward_input(DType dtype, ConvShape s, Add with, bool exact, Gradients gradients) {
  Problem p(dtype);
  p.exact = exact;
  const Values dout = data(p, s.out_count()), weight = data(p, s.weight_count());
  const Values add = with == Add::none ? Values{} : data(p, s.inp_count());
  const bool in_place = with == Add::in_place;
  p.output("dinp", inp_of(s), oracle::conv_backward_input(dout, weight, add, s, dtype),
           in_place ? add : Values{});
  p.input("dout", out_of(s), dout), p.input("weight", weight_of(s), weight);
  if (with == Add::given) p.input("add", inp_of(s), add);
  const ConvBackwardInput op{.shape = s, .dtype = dtype};
  const std::map<std::string, std::string> arguments = {{"add", in_place ? "dinp" : "add"}};
  if (gradients == Gradients::both)
    p.runs(ConvBackward{.weight = add_weight_gradient(p, dout, s, exact), .input = op}, arguments);
  else
    p.runs(op, arguments);
  return p;
}

enum class Sign { recomputed, of_out, any };  // any: without relu

struct InputSums {
  ConvShape s;
  Add add;
  Sign sign;
  bool accumulate, exact;
};

oracle::Norm norm_before(Problem& p, const InputSums& t) {
  const auto C = size_t(t.s.C);
  oracle::Norm n{.inp = data(p, t.s.inp_count()),
                 .mean = p.data_fp32(C),
                 .rstd = Values(C),
                 .weight = p.data_fp32(C),
                 .bias = p.data_fp32(C),
                 .out = {},
                 .relu = t.sign != Sign::any};
  for (double& r : n.rstd) r = t.exact ? 1 << p.random.below(2) : float(.25 + p.random.uniform());
  if (t.sign == Sign::of_out) n.out = data(p, t.s.inp_count());
  for (double& y : n.out) y = std::max(y, 0.0);
  return n;
}

// The sums must be those of dinp as the device stored it.
std::string check_norm_sums(const DeviceArguments& a, const oracle::Norm& n, DType dtype,
                            const Values& before, bool exact) {
  const auto C = n.mean.size();
  const Tensor sums = oracle::norm_sums(decode(a.read("dinp"), dtype), n);
  const auto compare_to = [&](const char* name, Tensor known) {
    Values expected, allowed;
    for (const Tracked& k : known)
      expected.push_back(k.value), allowed.push_back(exact ? 0 : tolerance(k, DType::fp32));
    const Comparison c = compare(decode(a.read(name), DType::fp32), expected, allowed);
    return c.ok() ? "" : std::string(name) + ": " + c.describe(Shape{int(known.size())}) + " ";
  };
  Tensor dbias(sums.begin(), sums.begin() + ptrdiff_t(C)),
      dweight(sums.begin() + ptrdiff_t(C), sums.end());
  for (size_t c = 0; c < before.size(); ++c)
    dbias[c] += Tracked(before[c]), dweight[c] += Tracked(before[c]);
  return compare_to("sums", sums) + compare_to("dnorm_bias", dbias) +
         compare_to("dnorm_weight", dweight);
}

Problem backward_input_sums(DType dtype, const InputSums& t, Gradients gradients) {
  Problem p(dtype);
  p.exact = t.exact;
  const ConvShape& s = t.s;
  const Values dout = data(p, s.out_count()), weight = data(p, s.weight_count());
  const Values add = t.add == Add::none ? Values{} : data(p, s.inp_count());
  const oracle::Norm n = norm_before(p, t);
  const Shape C{s.C};
  Tensor dinp = oracle::conv_backward_input(dout, weight, add, s, dtype);
  for (size_t i = 0; t.sign == Sign::of_out && i < dinp.size(); ++i)
    if (!oracle::passes(n, i)) dinp[i] = 0;
  const bool in_place = t.add == Add::in_place;
  p.output("dinp", inp_of(s), dinp, in_place ? add : Values{});
  const Values before = t.accumulate ? p.data_fp32(size_t(s.C)) : Values{};
  for (const char* name : {"sums", "dnorm_weight", "dnorm_bias"}) {
    const bool both = name == std::string("sums");
    p.arguments.push_back({.name = name,
                           .shape = both ? Shape{2, s.C} : C,
                           .bytes = (both ? 2 : 1) * sizeof(float) * size_t(s.C),
                           .before = both ? Bytes{} : encode(before, DType::fp32),
                           .expected = {},
                           .check = [](auto) { return std::string(); }});  // checked with dinp
  }
  p.check_together = [=](const DeviceArguments& a) {
    return check_norm_sums(a, n, dtype, before, t.exact);
  };
  p.input("dout", out_of(s), dout), p.input("weight", weight_of(s), weight);
  if (t.add == Add::given) p.input("add", inp_of(s), add);
  p.input("norm_inp", inp_of(s), n.inp);
  if (!n.out.empty()) p.objects("norm_relu_mask", positive_words(n.out, s.C));
  p.input_fp32("mean", C, n.mean), p.input_fp32("rstd", C, n.rstd);
  p.input_fp32("norm_weight", C, n.weight), p.input_fp32("norm_bias", C, n.bias);
  const ConvBackwardInputSums op{
      .shape = s, .relu = n.relu, .dtype = dtype, .accumulate = t.accumulate};
  const std::map<std::string, std::string> arguments = {{"add", in_place ? "dinp" : "add"}};
  if (gradients == Gradients::both)
    p.runs(ConvBackwardSums{.weight = add_weight_gradient(p, dout, s, t.accumulate), .input = op},
           arguments);
  else
    p.runs(op, arguments);
  return p;
}

Problem backward_weight(DType dtype, ConvShape s, bool accumulate, bool exact) {
  Problem p(dtype);
  p.exact = exact;
  const Values dout = data(p, s.out_count()), inp = data(p, s.inp_count());
  p.gradient("dweight", weight_of(s), oracle::conv_backward_weight(dout, inp, s, dtype),
             accumulate);
  p.input("dout", out_of(s), dout), p.input("inp", inp_of(s), inp);
  p.runs(ConvBackwardWeight{.shape = s, .dtype = dtype, .accumulate = accumulate});
  return p;
}

// Every distinct convolution of the models: C, K, R, stride, groups.
using Layer = std::array<int, 5>;
std::set<Layer> layers_of_models() {
  std::set<Layer> layers;
  for (const std::string& model : known_models())
    for (const RecordedOperation& o : record_model({model, "--batch", "2", "--image-size", "32"}))
      if (const auto* conv = std::get_if<ConvForward>(&o.operation)) {
        const ConvShape& s = conv->shape;
        layers.insert({s.C, s.K, s.R, s.stride, s.groups});
      }
  return layers;
}

// Small images, since the cases test the channels.
ConvShape shape_of(const Layer& layer) {
  const auto [C, K, R, stride, groups] = layer;
  const int H = R == 7 ? 15 : stride == 2 ? 9 : 7;
  const bool large = double(C) / groups * K * R * R > 1e5;
  return {large ? 1 : 2, H, H == 9 ? 8 : H, C, K, R, R, stride, R / 2, groups};
}

// N, H, W, C, K, R, S, stride, padding, groups.
const ConvShape odd_shapes[] = {
    {1, 1, 1, 1, 1, 1, 1, 1, 0},
    // few channels of the input
    {1, 7, 9, 3, 7, 3, 3, 1, 1},
    {2, 15, 7, 5, 10, 3, 3, 2, 1},
    {1, 8, 8, 17, 1, 5, 5, 1, 2},
    {1, 33, 31, 3, 64, 7, 7, 2, 3},
    {1, 15, 16, 3, 10, 7, 7, 2, 3},
    {2, 9, 7, 3, 24, 5, 5, 1, 2},
    {1, 6, 7, 3, 16, 3, 3, 1, 0},
    {1, 5, 6, 5, 40, 3, 3, 1, 1},
    {2, 6, 5, 42, 5, 3, 3, 2, 1},
    // filters mostly on padding
    {2, 1, 1, 16, 24, 3, 3, 1, 1},
    {2, 2, 2, 64, 64, 3, 3, 1, 1},
    {3, 2, 2, 8, 16, 3, 3, 2, 1},
    {2, 1, 1, 512, 512, 3, 3, 1, 1},
    {1, 5, 5, 8, 8, 1, 1, 1, 2},
    {1, 7, 7, 4, 6, 2, 4, 3, 3},
    // oblong filters and images
    {1, 1, 9, 6, 4, 1, 3, 1, 0},
    {1, 9, 5, 12, 8, 3, 1, 1, 1},
    {1, 9, 5, 16, 8, 3, 1, 1, 1},
    {2, 6, 9, 8, 24, 1, 3, 2, 1},
    {2, 15, 1, 8, 8, 1, 1, 1, 0},
    {2, 4, 5, 8, 16, 4, 5, 1, 0},
    // strides that skip rows of the image, also at its end
    {1, 8, 10, 16, 8, 3, 3, 2, 0},
    {1, 10, 11, 3, 8, 7, 7, 3, 3},
    {1, 9, 9, 16, 16, 1, 1, 3, 0},
    {1, 13, 11, 8, 8, 2, 2, 5, 0},
    {2, 7, 8, 64, 32, 1, 1, 2, 0},
    // groups
    {2, 5, 6, 64, 32, 3, 3, 1, 1, 2},
    {1, 5, 6, 6, 4, 3, 3, 2, 1, 2},
    {1, 7, 5, 32, 32, 3, 3, 1, 1, 32},
    {1, 7, 5, 32, 64, 3, 3, 2, 1, 32},
    {2, 4, 4, 10, 15, 1, 1, 1, 0, 5},
    {1, 6, 5, 24, 24, 3, 3, 1, 1, 2},
    // groups of 4, 8, 16 and 32 channels, for tensor cores
    {2, 7, 9, 8, 8, 3, 3, 1, 1, 2},
    {1, 13, 11, 72, 72, 3, 3, 1, 1, 18},
    {1, 9, 8, 24, 24, 3, 3, 2, 1, 3},
    {1, 6, 5, 80, 80, 3, 3, 1, 1, 5},
    {1, 8, 7, 32, 32, 5, 5, 3, 2, 2},
    {1, 5, 5, 96, 96, 3, 3, 2, 1, 3},
    {2, 1, 1, 32, 32, 3, 3, 1, 1, 2},
    {2, 3, 5, 16, 16, 1, 3, 1, 1, 2},
    {1, 3, 3, 128, 128, 1, 1, 1, 0, 4},
    // around tile sizes
    {1, 9, 9, 24, 72, 3, 3, 1, 1},
    {1, 7, 7, 8, 136, 3, 3, 1, 1},
    {1, 7, 7, 136, 24, 1, 1, 1, 0},
    {2, 5, 7, 200, 8, 1, 1, 1, 0},
    {1, 6, 5, 200, 136, 3, 3, 2, 1},
    {1, 4, 4, 72, 200, 3, 3, 1, 1},
    {17, 3, 3, 8, 8, 3, 3, 1, 1},
    {2, 1, 1, 8, 16, 3, 3, 2, 1},   // columns of the filter meet no pixel
    {1, 1, 1, 321, 1, 7, 7, 1, 3},  // many channels, odd
    // channels in blocks of 64, whole and not, for TMA
    {4, 1, 1, 64, 128, 3, 3, 1, 1},
    {4, 2, 2, 64, 128, 3, 3, 2, 1},
    {5, 2, 2, 64, 128, 1, 1, 2, 0},
    {1, 3, 4, 136, 40, 1, 1, 2, 0},  // most phases of dinp have no taps
    {3, 5, 6, 40, 72, 3, 3, 1, 1},
    {2, 6, 5, 72, 40, 3, 3, 2, 1},
    {2, 9, 7, 64, 192, 3, 3, 2, 1},
    {1, 9, 7, 192, 64, 3, 3, 1, 1},
    {1, 7, 9, 64, 64, 1, 7, 1, 0},
    {1, 9, 7, 64, 64, 5, 3, 3, 2},
    {1, 6, 5, 64, 64, 2, 2, 1, 1},
    {1, 3, 5, 40, 40, 2, 7, 4, 1},  // one pixel, whose variance is 0
    {2, 1, 2, 32, 64, 3, 3, 8, 4},  // every pixel reads only padding
    // one tile of out or of dinp, whose gemm_k several blocks share
    {2, 2, 2, 256, 64, 3, 3, 1, 1},
    {2, 2, 2, 64, 256, 3, 3, 1, 1},
    {1, 40, 41, 8, 16, 3, 3, 1, 1},
    {1, 65, 33, 16, 24, 1, 1, 1, 0},
    {1, 65, 33, 5, 6, 3, 3, 1, 1},
    {1, 100, 101, 8, 8, 1, 1, 1, 0},
    {1, 101, 64, 3, 8, 7, 7, 2, 3},
};

KernelCases conv_cases() {
  KernelCases cases;
  const std::set<Layer> layers = layers_of_models();
  const auto add_forward = [&](const ConvShape& s, Moments moments, bool exact) {
    const char* kinds[] = {"", "_moments", "_moments_offset"};
    cases.add("conv_forward" + name_of(s) + kinds[int(moments)] + flag(exact, "exact"), forward, s,
              moments, exact);
  };
  const auto add_backward_input = [&](const ConvShape& s, Add add, bool exact) {
    const char* kinds[] = {"", "_add", "_add_in_place"};
    cases.add("conv_backward_input" + name_of(s) + kinds[int(add)] + flag(exact, "exact"),
              backward_input, s, add, exact, Gradients::input);
  };
  const auto add_sums = [&](const ConvShape& s, int i, bool exact) {
    const InputSums t{s, Add(i / 2 % 3), Sign(i % 3), i % 2 == 0, exact};
    const char *adds[] = {"", "_add", "_add_in_place"}, *signs[] = {"", "_out", "_no_relu"};
    cases.add("conv_backward_input_sums" + name_of(s) + adds[int(t.add)] + signs[int(t.sign)] +
                  flag(t.accumulate, "accumulate") + flag(exact, "exact"),
              backward_input_sums, t, Gradients::input);
  };
  const auto add_backward_weight = [&](const ConvShape& s, bool accumulate, bool exact) {
    cases.add(
        "conv_backward_weight" + name_of(s) + flag(accumulate, "accumulate") + flag(exact, "exact"),
        backward_weight, s, accumulate, exact);
  };
  // Each shape in every direction; the options take turns.
  int i = 0;
  const auto add_once = [&](const ConvShape& s) {
    add_forward(s, i % 2 ? Moments::none : Moments::wanted, false);
    add_backward_input(s, Add(i % 3), false);
    add_backward_weight(s, i % 2, false);
    ++i;
  };
  for (const Layer& layer : layers) add_once(shape_of(layer));
  for (const ConvShape& s : odd_shapes) {
    add_forward(s, Moments::wanted, false);
    add_forward(s, Moments::none, true);
    add_backward_input(s, i % 2 ? Add::none : Add::given, false);
    add_backward_input(s, i % 2 ? Add::in_place : Add::none, true);
    for (const bool accumulate : {false, true})
      add_backward_weight(s, accumulate, accumulate == (i % 4 < 2));
    const bool by_tiles = (s.groups == 1 || s.C == s.K) && s.C % 8 == 0 && s.K % 8 == 0;
    if (by_tiles || i % 4 == 0) add_sums(s, i, i / 3 % 2);
    ++i;
  }
  // Hopper's wide tiles, and tiles that its consumers share; in the last of these, the second
  // consumer's rows are past the end.
  const size_t wide = cases.size();
  for (const ConvShape& s : {ConvShape{2, 13, 20, 32, 72, 3, 3, 1, 1},
                             {2, 13, 20, 72, 32, 3, 3, 1, 1},
                             {1, 15, 20, 32, 128, 1, 1, 1, 0},
                             {1, 15, 20, 128, 32, 1, 1, 1, 0},
                             {1, 17, 17, 128, 32, 3, 3, 2, 1}})
    add_once(s), add_sums(s, i, false);
  for (const ConvShape& s : {ConvShape{1, 10, 15, 256, 8, 1, 1, 1, 0},
                             {1, 20, 30, 256, 136, 1, 1, 1, 0},
                             {1, 21, 31, 128, 136, 2, 2, 1, 0}})
    add_backward_weight(s, false, false);
  // Both gradients. On Hopper, the input gradient's launch adds up the weight gradient's parts in
  // the last four shapes.
  for (const ConvShape& s : {ConvShape{2, 3, 3, 5, 7, 3, 3, 1, 1},
                             {1, 33, 31, 64, 32, 1, 1, 1, 0},
                             {1, 17, 61, 64, 40, 3, 3, 1, 1},
                             {1, 65, 63, 64, 32, 3, 3, 2, 1},
                             {1, 65, 63, 64, 32, 1, 1, 2, 0}}) {
    const bool odd = ++i % 2;
    cases.add("conv_backward" + name_of(s), backward_input, s, odd ? Add::given : Add::none, odd,
              Gradients::both);
    cases.add("conv_backward_sums" + name_of(s), backward_input_sums,
              InputSums{s, odd ? Add::in_place : Add::none, Sign(i % 3), odd, false},
              Gradients::both);
  }
  cases.always(wide);
  // Without padding, whose zeros would add variance.
  for (const ConvShape& s : {ConvShape{2, 7, 7, 64, 64, 3, 3, 1, 0},
                             {1, 9, 9, 72, 40, 1, 1, 1, 0},
                             {1, 15, 15, 3, 16, 7, 7, 2, 0},
                             {2, 6, 6, 32, 32, 3, 3, 1, 0, 8},
                             {1, 65, 33, 5, 6, 1, 1, 1, 0},
                             {3, 1, 1, 5, 7, 1, 1, 1, 0}})
    add_forward(s, Moments::of_offset, false);

  // More than 8 MB, which the CPU computes in parts; no special case on a GPU, and slow on simt.
  add_forward({3, 105, 106, 8, 64, 1, 1, 1, 0}, Moments::wanted, false);
  cases.back().cpu_only = true;
  add_backward_input({3, 105, 106, 64, 8, 1, 1, 1, 0}, Add::given, false);
  cases.back().cpu_only = true;

  cases.begin_sweep();
  // The models' layers again, with integers.
  for (const Layer& layer : layers) {
    const ConvShape s = shape_of(layer);
    add_forward(s, Moments::wanted, true);
    add_backward_input(s, Add::given, true), add_backward_weight(s, false, true);
    for (int k = 0; k < 6; ++k) add_sums(s, k, k % 2);
  }
  for (const int channels : sweep_of_sizes()) {
    if (channels > 1025) continue;
    add_once({1, 5, 6, channels, 24, 3, 3, 1, 1});
    add_once({1, 5, 6, 24, channels, 3, 3, 2, 1});
    add_once({2, 3, 3, channels, channels, 1, 1, 1, 0, channels % 2 ? 1 : 2});
    add_once({1, 15, 9, 3, channels, 7, 7, 2, 3});
  }
  TestValues random(1);
  const auto one_of = [&](std::initializer_list<int> list) {
    return list.begin()[random.below(int(list.size()))];
  };
  for (int n = 0; n < 1000; ++n) {
    // Many of the shapes suit tensor cores, with one group and with several.
    const bool diagonal = n % 5 == 0, eights = n % 2;
    const int groups = diagonal ? one_of({2, 4, 6, 10, 18}) : eights ? 1 : one_of({1, 2, 3, 8});
    const int channels = groups * one_of({4, 8, 16, 32});
    const ConvShape s{.N = one_of({1, 2, 3}),
                      .H = one_of({1, 2, 3, 7, 8, 15}),
                      .W = one_of({1, 2, 5, 9, 16, 21}),
                      .C = diagonal ? channels
                           : eights ? 8 * one_of({1, 2, 3, 5, 9, 17})
                                    : groups * one_of({1, 3, 4, 8, 17}),
                      .K = diagonal ? channels
                           : eights ? 8 * one_of({1, 2, 3, 5, 9, 17})
                                    : groups * one_of({1, 2, 5, 8, 40}),
                      .R = one_of({1, 2, 3, 5, 7}),
                      .S = one_of({1, 2, 3, 5, 7}),
                      .stride = one_of({1, 1, 2, 3, 4}),
                      .padding = random.below(5),
                      .groups = groups};
    if (s.H + 2 * s.padding >= s.R && s.W + 2 * s.padding >= s.S) add_once(s);
  }
  return cases;
}

[[maybe_unused]] const bool added = add_cases(conv_cases());

template <class Op>
bool refuses_shapes() {
  return refuses<Op>({
      {"padding", [](Op& o) { o.shape.padding = -1; }},
      {"C must be", [](Op& o) { o.shape.C = 5, o.shape.K = 4, o.shape.groups = 2; }},
      {"K must be", [](Op& o) { o.shape.C = 4, o.shape.K = 5, o.shape.groups = 2; }},
      {"smaller than the filter", [](Op& o) { o.shape.R = o.shape.H + 2 * o.shape.padding + 1; }},
      {"smaller than the filter", [](Op& o) { o.shape.S = o.shape.W + 2 * o.shape.padding + 1; }},
      {"more positions", [](Op& o) { o.shape.N = o.shape.H = o.shape.W = 1 << 12; }},
      {"2^30", [](Op& o) { o.shape.C = 1 << 15, o.shape.K = 1 << 16, o.shape.groups = 1; }},
      {"stride", [](Op& o) { o.shape.stride = 256; }, Refusal<Op>::gpu},
  });
}
[[maybe_unused]] const bool refused =
    refuses_shapes<ConvForward>() && refuses_shapes<ConvBackwardInput>() &&
    refuses_shapes<ConvBackwardInputSums>() && refuses_shapes<ConvBackwardWeight>();

using Op = ConvBackwardInputSums;
[[maybe_unused]] const bool refused_norm =
    refuses<Op>({{"norm_relu_mask", [](Op& o) {
                    o.norm_relu_mask = static_cast<const uint64_t*>(o.norm_inp), o.relu = false;
                  }}});

}  // namespace
}  // namespace bv::test

// The oracles' backward passes against central finite differences of their forward passes, in
// double precision: with a random gradient of the outputs, of each differentiable input up to 60
// elements.
#include "tests/kernels/oracle.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "tests/numerics/compare.h"
#include "tests/numerics/test_values.h"

namespace bv::test::oracle {
namespace {

double dot(const Values& a, const Tensor& b) {
  EXPECT_EQ(a.size(), b.size());
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i].value;
  return sum;
}

Values values_of(const Tensor& t) {
  Values v;
  for (const Tracked& e : t) v.push_back(e.value);
  return v;
}

Tensor exactly(const Values& v) { return Tensor(v.begin(), v.end()); }

// `loss` reads `input`; `gradient` is the oracle's claim of its derivative.
void check_gradient(const char* name, Values& input, const Tensor& gradient,
                    const std::function<double()>& loss) {
  ASSERT_EQ(input.size(), gradient.size()) << name;
  const size_t step = std::max<size_t>(1, input.size() / 60);
  Values claimed, measured, tolerance;
  for (size_t i = 0; i < input.size(); i += step) {
    const double h = 1e-5, x = input[i];
    input[i] = x + h;
    const double above = loss();
    input[i] = x - h;
    const double below = loss();
    input[i] = x;
    claimed.push_back(gradient[i].value);
    measured.push_back((above - below) / (2 * h));
    tolerance.push_back(1e-7 * (1 + std::fabs(claimed.back())));
  }
  const Comparison c = compare(claimed, measured, tolerance);
  EXPECT_TRUE(c.ok()) << name << ": " << c.describe(std::vector{int(claimed.size())});
}

TEST(Oracle, Linear) {
  TestValues random(1);
  const int M = 3, N = 5, K = 7;
  Values inp = random.normal(M * K), weight = random.normal(N * K), bias = random.normal(N);
  const Values dout = random.normal(M * N);
  const auto loss = [&] { return dot(dout, linear_forward(inp, weight, bias, M, N, K)); };
  const LinearGradient g = linear_backward_weight(dout, inp, M, N, K);
  check_gradient("inp", inp, linear_backward_input(dout, weight, M, N, K), loss);
  check_gradient("weight", weight, g.dweight, loss);
  check_gradient("bias", bias, g.dbias, loss);
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

void check_attention(float drop) {
  TestValues random(4);
  AttentionSizes s{.B = 2, .N = 5, .H = 3, .D = 4, .layer = 7, .drop = drop};
  s.params = {.seed = 11, .epoch = 2, .position = 40};
  Values qkv = random.normal(size_t(s.B) * s.N * 3 * s.H * s.D);
  const Values dout = random.normal(size_t(s.B) * s.N * s.H * s.D);
  const AttentionResult r = attention_forward(qkv, s);
  const Tensor dqkv = attention_backward(dout, qkv, values_of(r.out), values_of(r.lse), s);
  check_gradient("qkv", qkv, dqkv, [&] { return dot(dout, attention_forward(qkv, s).out); });
  // The key's bias shifts all scores of a query alike, so that its gradient is zero.
  for (int i = 0; i < s.H * s.D; ++i) {
    double sum = 0;
    for (int row = 0; row < s.B * s.N; ++row)
      sum += dqkv[(size_t(row) * 3 + 1) * s.H * s.D + i].value;
    EXPECT_NEAR(sum, 0, 1e-12);
  }
}

TEST(Oracle, Attention) { check_attention(0); }
TEST(Oracle, AttentionWithDropout) { check_attention(0.4f); }

TEST(Oracle, AttentionOfEqualScoresIsTheMean) {
  const AttentionSizes s{.B = 1, .N = 2, .H = 1, .D = 1};
  const AttentionResult r = attention_forward({0, 0, 3, 0, 0, 5}, s);  // q, k, v of two tokens
  EXPECT_NEAR(r.out[0].value, 4, 1e-15);
  EXPECT_NEAR(r.lse[0].value, std::log(2.0), 1e-15);
}

TEST(Oracle, Embed) {
  TestValues random(5);
  const int B = 3, P = 4, C = 5;
  Values patches = random.normal(B * P * C), token = random.normal(C),
         position = random.normal((1 + P) * C);
  const Values dout = random.normal(B * (1 + P) * C);
  const auto loss = [&] { return dot(dout, embed_forward(patches, token, position, B, P, C)); };
  const EmbedGradient g = embed_backward(dout, B, P, C);
  check_gradient("patches", patches, g.dpatches, loss);
  check_gradient("class_token", token, g.dclass_token, loss);
  check_gradient("position", position, g.dposition, loss);
}

TEST(Oracle, ClassToken) {
  TestValues random(6);
  const int B = 2, N = 3, C = 5;
  Values inp = random.normal(B * N * C);
  const Values dout = random.normal(B * C);
  check_gradient("inp", inp, class_token_backward(dout, B, N, C),
                 [&] { return dot(dout, class_token_forward(inp, B, N, C)); });
}

// The formula of kernels.h word for word, in loops over everything.
Values convolution(const Values& inp, const Values& weight, const ConvShape& o) {
  Values out(size_t(o.out_count()));
  const int C = o.C / o.groups;
  size_t at = 0;
  for (int n = 0; n < o.N; ++n)
    for (int p = 0; p < o.P(); ++p)
      for (int q = 0; q < o.Q(); ++q)
        for (int k = 0; k < o.K; ++k, ++at)
          for (int r = 0; r < o.R; ++r)
            for (int s = 0; s < o.S; ++s)
              for (int c = 0; c < C; ++c) {
                const int h = p * o.stride - o.padding + r, w = q * o.stride - o.padding + s;
                if (h < 0 || h >= o.H || w < 0 || w >= o.W) continue;
                const int first = k / (o.K / o.groups) * C;
                out[at] += inp[((size_t(n) * o.H + h) * o.W + w) * o.C + first + c] *
                           weight[((size_t(k) * o.R + r) * o.S + s) * C + c];
              }
  return out;
}

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
    const Values plain = convolution(inp, weight, s);
    EXPECT_TRUE(compare(values_of(values()), plain, Values(plain.size(), 1e-12)).ok());
    const auto loss = [&] { return dot(dout, values()) + dot(add, exactly(inp)); };
    check_gradient("inp", inp, conv_backward_input(dout, weight, add, s), loss);
    check_gradient("weight", weight, conv_backward_weight(dout, inp, s), loss);
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

TEST(Oracle, ColumnMoments) {
  const Tensor m = column_moments({1, 1000, 3, 1001, 5, 1005}, 3, 2);
  EXPECT_EQ(values_of(m), (Values{3, 1002, 8.0 / 3, 14.0 / 3}));
  // What is told of its error holds for the sum and then that of squared deviations, for Welford's
  // way and for sums less the first row, and forbids squares without anything taken off.
  TestValues random(14);
  for (const int rows : {2, 50, 1000}) {
    const Values x = random.normal(size_t(rows), 300);
    const float n = float(rows), first = float(x[0]);
    float sum = 0, squares = 0, less = 0, less_squares = 0, mean = 0, m2 = 0, of_squares = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      const float v = float(x[i]), off = v - mean, d = v - first;
      sum += v, squares += v * v, less += d, less_squares += d * d;
      mean += off / float(i + 1), m2 += off * (v - mean);
    }
    for (const double v : x) of_squares += (float(v) - sum / n) * (float(v) - sum / n);
    const Tensor known = column_moments(x, rows, 1);
    const auto deviations = [&](size_t which, float found) {
      return std::fabs(found - known[which].value) / std::sqrt(known[which].variance);
    };
    for (const float found : {sum / n, mean, first + less / n}) EXPECT_LT(deviations(0, found), 3);
    for (const float found : {of_squares, m2, less_squares - less * less / n})
      EXPECT_LT(deviations(1, found / n), 3);
    EXPECT_GT(deviations(1, squares / n - sum / n * (sum / n)), 10);
  }
}

// Batch norm over the batches of `parts` processes: the loss is over all of them.
void check_batchnorm(int parts, bool relu, bool with_residual) {
  TestValues random(15);
  const int rows = 6, C = 5;
  const size_t count = size_t(rows) * C;
  BatchNormForward o{};
  o.shape = {rows, C}, o.parts = parts, o.eps = 0.1f, o.relu = relu;
  BatchNormBackwardSums o_sums{};
  o_sums.shape = {rows, C}, o_sums.relu = relu;
  BatchNormBackward o_back{};
  // With a residual g is there already.
  o_back.shape = {rows, C}, o_back.parts = parts, o_back.relu = relu && !with_residual;
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
    return batchnorm_forward(inp[part], residual[part], moments, weight, bias, {}, {}, o);
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
  // Running statistics: momentum, and n / (n - 1) of the variance with n = 8.
  BatchNormForward o{};
  o.shape = {4, 3}, o.parts = 2, o.eps = 1e-5f, o.momentum = 0.25f;
  const BatchNormResult r = batchnorm_forward({all.begin(), all.begin() + 12}, {}, moments,
                                              Values(3, 1), Values(3), {1, 2, 3}, {4, 5, 6}, o);
  for (size_t c = 0; c < 3; ++c) {
    EXPECT_NEAR(r.running_mean[c].value, 0.75 * (1 + double(c)) + 0.25 * together[c].value, 1e-12);
    EXPECT_NEAR(r.running_var[c].value,
                0.75 * (4 + double(c)) + 0.25 * 8 / 7 * together[3 + c].value, 1e-12);
  }
  // Evaluated with the same statistics, it is the same.
  Values mean, variance;
  for (size_t c = 0; c < 3; ++c)
    mean.push_back(together[c].value), variance.push_back(together[3 + c].value);
  BatchNormEvaluate e{};
  e.shape = {4, 3}, e.eps = 1e-5f;
  const Values part(all.begin(), all.begin() + 12);
  EXPECT_TRUE(
      compare(values_of(batchnorm_evaluate(part, {}, mean, variance, Values(3, 1), Values(3), e)),
              values_of(r.out), Values(12, 1e-12))
          .ok());
}

void check_max_pool(int R, int stride, int padding) {
  TestValues random(10);
  MaxPoolForward s{};
  s.shape = {2, 5, 7, 3, R, stride, padding};
  MaxPoolBackward back{};
  back.shape = s.shape;
  Values inp = random.normal(size_t(s.shape.inp_count()));
  const MaxPoolResult r = max_pool_forward(inp, s);
  const Values dout = random.normal(r.out.size());
  check_gradient("inp", inp, max_pool_backward(dout, r.index, back),
                 [&] { return dot(dout, max_pool_forward(inp, s).out); });
}

TEST(Oracle, MaxPool) {
  for (const int R : {1, 2, 3})
    for (const int stride : {1, 2, 3})
      for (int padding = 0; padding <= R / 2; ++padding) check_max_pool(R, stride, padding);
}

TEST(Oracle, MaxPoolTakesTheFirstOfEqualsAndNaNBeforeAll) {
  MaxPoolForward s{};
  s.shape = {.N = 1, .H = 2, .W = 3, .C = 1, .R = 2, .stride = 1};
  const MaxPoolResult r = max_pool_forward({4, 1, NAN, 4, 4, NAN}, s);
  EXPECT_EQ(r.out[0].value, 4);
  EXPECT_TRUE(std::isnan(r.out[1].value));
  EXPECT_EQ(r.index, (std::vector<uint8_t>{0, 1}));
  s.shape.padding = 1;
  EXPECT_EQ(max_pool_forward({4, 1, NAN, 4, 4, NAN}, s).index,
            (std::vector<uint8_t>{3, 2, 3, 2, 1, 0, 1, 0, 1, 0, 1, 0}));
}

TEST(Oracle, AveragePool) {
  TestValues random(11);
  const int N = 2, positions = 6, C = 5;
  Values inp = random.normal(N * positions * C);
  const Values dout = random.normal(N * C);
  check_gradient("inp", inp, average_pool_backward(dout, N, positions, C),
                 [&] { return dot(dout, average_pool_forward(inp, N, positions, C)); });
}

TEST(Oracle, Dropout) {
  TestValues random(7);
  const int B = 3, elements = 20;
  const StepParams p{.seed = 5, .epoch = 1, .position = 9};
  for (const int group : {1, 7, elements}) {
    Values inp = random.normal(B * elements);
    const Values dout = random.normal(B * elements);
    check_gradient("inp", inp, dropout(dout, p, B, elements, group, 2, 0.3f),
                   [&] { return dot(dout, dropout(inp, p, B, elements, group, 2, 0.3f)); });
  }
}

TEST(Oracle, DropoutKeepsTheStatedShareAndDependsOnEveryKey) {
  const StepParams p{.seed = 5, .epoch = 1, .position = 9};
  const auto mask = [](const StepParams& params, uint32_t layer, int image) {
    std::vector<bool> bits;
    for (uint32_t i = 0; i < 10000; ++i) bits.push_back(kept(i, image, layer, 0.25f, params));
    return bits;
  };
  const std::vector<bool> bits = mask(p, 0, 0);
  EXPECT_NEAR(std::count(bits.begin(), bits.end(), true) / 10000.0, 0.75, 0.02);
  EXPECT_NE(bits, mask(p, 1, 0));
  EXPECT_NE(bits, mask(p, 0, 1));
  EXPECT_NE(bits, mask({.seed = 6, .epoch = 1, .position = 9}, 0, 0));
  EXPECT_NE(bits, mask({.seed = 5, .epoch = 2, .position = 9}, 0, 0));
  // The image is named by where it stands in the epoch, however it is batched.
  EXPECT_EQ(bits, mask({.seed = 5, .epoch = 1, .position = 6}, 0, 3));
}

void check_cross_entropy(bool soft, double smoothing) {
  TestValues random(8);
  const LossSizes s{.B = 4, .K = 6, .smoothing = smoothing};
  const std::vector<int32_t> labels{2, -1, 0, 5};
  Values logits = random.normal(s.B * s.K, 0, 3), targets;
  for (int i = 0; soft && i < s.B * s.K; ++i) targets.push_back(i % s.K < 2 ? 0.5 : 0);
  const CrossEntropyResult r = cross_entropy_forward(logits, labels, targets, s);
  EXPECT_EQ(r.loss[1].value, 0);
  const double grad_scale = 0.25, loss_scale = 8;
  const Values each(s.B, grad_scale * loss_scale);
  check_gradient(
      "logits", logits,
      cross_entropy_backward(logits, values_of(r.lse), labels, targets, grad_scale, loss_scale, s),
      [&] { return dot(each, cross_entropy_forward(logits, labels, targets, s).loss); });
}

TEST(Oracle, CrossEntropy) { check_cross_entropy(false, 0); }
TEST(Oracle, CrossEntropySmoothed) { check_cross_entropy(false, 0.1); }
TEST(Oracle, CrossEntropySoftTargets) { check_cross_entropy(true, 0.1); }

TEST(Oracle, MetricsCountRanks) {
  // Label 3 in rows of 7: first; tied with a lower index; sixth; absent.
  const Values logits{0, 1, 2, 9, 4, 5, 6,  //
                      0, 9, 2, 9, 4, 5, 6,  //
                      9, 9, 9, 1, 9, 9, 0,  //
                      0, 1, 2, 9, 4, 5, 6};
  EXPECT_EQ(metrics({1, 2, 4, 8}, logits, {3, 3, 3, -1}, 4, 7), (Values{7, 3, 1, 2}));
}

TEST(Oracle, TrackedErrorIsWhatRoundingDoes) {
  // Sums of 10,000 numbers in fp32: the error predicted is the error found, within a factor.
  TestValues random(9);
  double predicted = 0, found = 0;
  for (int trial = 0; trial < 100; ++trial) {
    Tracked sum = 0;
    float rounded = 0;
    for (double v : random.normal(10000)) sum += Tracked(v), rounded += float(v);
    predicted += sum.variance;
    found += (sum.value - rounded) * (sum.value - rounded);
  }
  EXPECT_LT(found, predicted);
  EXPECT_GT(found, predicted / 30);
}

}  // namespace
}  // namespace bv::test::oracle

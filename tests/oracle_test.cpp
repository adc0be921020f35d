// The oracles' backward passes against central finite differences of their forward passes, in
// double precision: with a random gradient of the outputs, of each differentiable input up to 60
// elements.
#include "tests/oracle.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "tests/compare.h"
#include "tests/test_values.h"

namespace bv::oracle {
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

void check_max_pool(int R, int stride, int padding) {
  TestValues random(10);
  MaxPoolForward s{};
  s.N = 2, s.H = 5, s.W = 7, s.C = 3, s.R = R, s.stride = stride, s.padding = padding;
  MaxPoolBackward back{};
  back.N = s.N, back.H = s.H, back.W = s.W, back.C = s.C;
  back.R = R, back.stride = stride, back.padding = padding;
  Values inp = random.normal(s.N * s.H * s.W * s.C);
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
  s.N = s.C = s.stride = 1, s.H = 2, s.W = 3, s.R = 2;
  const MaxPoolResult r = max_pool_forward({4, 1, NAN, 4, 4, NAN}, s);
  EXPECT_EQ(r.out[0].value, 4);
  EXPECT_TRUE(std::isnan(r.out[1].value));
  EXPECT_EQ(r.index, (std::vector<uint8_t>{0, 1}));
  s.padding = 1;
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
}  // namespace bv::oracle

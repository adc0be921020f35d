// Attention: the oracle, its gradients against finite differences, the cases, and how strict they
// are in 16 bits.
#include "simt/device/control.h"
#include "tests/kernels/kernel_cases.h"

namespace bv::test {
namespace {

// ---- oracle -------------------------------------------------------------------------------------
namespace oracle {

struct Attention {
  AttentionShape shape;
  uint32_t layer = 0;
  float drop = 0;
  StepParams params = {};     // seed, epoch, position
  DType dtype = DType::fp32;  // of P and dS as operands of a matrix product
};

struct AttentionResult {
  Tensor out, lse;
};

// Indices into the packed projections [B, N, 3, H, D], into [B, Q, H, D] and into [B, H, Q].
struct Index {
  const AttentionShape& s;
  size_t packed(int b, int n, int which, int h, int d) const {
    return (((size_t(b) * s.N + n) * 3 + which) * s.H + h) * s.D + d;
  }
  size_t token(int b, int n, int h, int d) const {
    return ((size_t(b) * s.Q + n) * s.H + h) * s.D + d;
  }
  size_t row(int b, int h, int n) const { return (size_t(b) * s.H + h) * s.Q + n; }
};

Tracked score_scale(const AttentionShape& s) { return Tracked(1) / sqrt(Tracked(s.D)); }

// Scores of one query over all keys.
Tensor scores(const Values& qkv, const AttentionShape& s, int b, int h, int q) {
  const Index at{s};
  Tensor row(s.N);
  for (int k = 0; k < s.N; ++k) {
    for (int d = 0; d < s.D; ++d)
      row[k] += Tracked(qkv[at.packed(b, q, 0, h, d)]) * Tracked(qkv[at.packed(b, k, 1, h, d)]);
    row[k] = row[k] * score_scale(s);
  }
  return row;
}

// An element of mask / (1 - drop).
Tracked keep_factor(const Attention& a, int b, int h, int q, int k) {
  if (a.drop == 0) return 1;
  const auto N = uint32_t(a.shape.N);
  const uint32_t decision = (uint32_t(h) * N + uint32_t(q)) * N + uint32_t(k);
  if (!kept(decision, b, a.layer, a.drop, a.params)) return 0;
  return Tracked(1) / (Tracked(1) - Tracked(a.drop));
}

AttentionResult attention_forward(const Values& qkv, const Attention& a) {
  const AttentionShape& s = a.shape;
  const Index at{s};
  AttentionResult r{Tensor(size_t(s.B) * s.Q * s.H * s.D), Tensor(size_t(s.B) * s.H * s.Q)};
  for (int b = 0; b < s.B; ++b)
    for (int h = 0; h < s.H; ++h)
      for (int q = 0; q < s.Q; ++q) {
        Tensor p = scores(qkv, s, b, h, q);
        double largest = -std::numeric_limits<double>::infinity();
        for (const Tracked& score : p) largest = std::max(largest, score.value);
        Tracked total = 0;
        for (Tracked& e : p) total += e = exp(e - Tracked(largest));
        r.lse[at.row(b, h, q)] = Tracked(largest) + log(total);
        for (int k = 0; k < s.N; ++k) {
          const Tracked weight = in_16_bits(p[k], a.dtype) / total * keep_factor(a, b, h, q, k);
          for (int d = 0; d < s.D; ++d)
            r.out[at.token(b, q, h, d)] += weight * Tracked(qkv[at.packed(b, k, 2, h, d)]);
        }
      }
  return r;
}

Tensor attention_backward(const Values& dout, const Values& qkv, const Values& out,
                          const Values& lse, const Attention& a) {
  const AttentionShape& s = a.shape;
  const Index at{s};
  const Tracked scale = score_scale(s);
  Tensor dqkv(qkv.size());
  for (int b = 0; b < s.B; ++b)
    for (int h = 0; h < s.H; ++h)
      for (int q = 0; q < s.Q; ++q) {
        const Tensor row = scores(qkv, s, b, h, q);
        Tracked delta = 0;
        for (int d = 0; d < s.D; ++d)
          delta += Tracked(dout[at.token(b, q, h, d)]) * Tracked(out[at.token(b, q, h, d)]);
        for (int k = 0; k < s.N; ++k) {
          // 16-bit kernels compute P by ex2.approx.ftz, so that P < 2^-126 becomes 0. The loss is
          //   in dV   P keep |dout|
          //   in dQ, dK   P |dP keep - delta| scale |K|, |Q|, with scale = 1 / sqrt(D)
          // for every such key or query. dP and delta are sums of D products, so that these factors
          // turn 2^-126 = 1.2e-38 into 1e-36 and more. Forward doesn't need this: each of its rows
          // has a P near 1.
          Tracked p = exp(row[k] - Tracked(lse[at.row(b, h, q)]));
          if (a.dtype != DType::fp32) p = flushed_to_zero(p);
          const Tracked keep = keep_factor(a, b, h, q, k);
          Tracked dp = 0;
          for (int d = 0; d < s.D; ++d) {
            const Tracked g = dout[at.token(b, q, h, d)];
            dp += g * Tracked(qkv[at.packed(b, k, 2, h, d)]);
            dqkv[at.packed(b, k, 2, h, d)] += in_16_bits(p, a.dtype) * keep * g;
          }
          const Tracked ds = in_16_bits(p * (dp * keep - delta) * scale, a.dtype);
          for (int d = 0; d < s.D; ++d) {
            dqkv[at.packed(b, q, 0, h, d)] += ds * Tracked(qkv[at.packed(b, k, 1, h, d)]);
            dqkv[at.packed(b, k, 1, h, d)] += ds * Tracked(qkv[at.packed(b, q, 0, h, d)]);
          }
        }
      }
  return dqkv;
}

// ---- the oracle's gradients ---------------------------------------------------------------------
void check_attention(float drop, int queries = 5) {
  TestValues random(4);
  const Attention a{.shape = {.B = 2, .N = 5, .H = 3, .D = 4, .Q = queries},
                    .layer = 7,
                    .drop = drop,
                    .params = {.seed = 11, .epoch = 2, .position = 40}};
  const AttentionShape& s = a.shape;
  Values qkv = random.normal(size_t(s.B) * s.N * 3 * s.H * s.D);
  const Values dout = random.normal(size_t(s.B) * s.Q * s.H * s.D);
  const AttentionResult r = attention_forward(qkv, a);
  const Tensor dqkv = attention_backward(dout, qkv, values_of(r.out), values_of(r.lse), a);
  check_gradient("qkv", qkv, dqkv, [&] { return dot(dout, attention_forward(qkv, a).out); });
  // A key bias shifts all scores of a query by the same amount, so its gradient is zero.
  for (int i = 0; i < s.H * s.D; ++i) {
    double sum = 0;
    for (int row = 0; row < s.B * s.N; ++row)
      sum += dqkv[(size_t(row) * 3 + 1) * s.H * s.D + i].value;
    EXPECT_NEAR(sum, 0, 1e-12);
  }
}

TEST(Oracle, Attention) { check_attention(0); }
TEST(Oracle, AttentionWithDropout) { check_attention(0.4f); }
TEST(Oracle, AttentionOfTheFirstTokens) { check_attention(0.4f, 2); }

TEST(Oracle, AttentionOfEqualScoresIsTheMean) {
  // q, k, v of two tokens
  const AttentionResult r = attention_forward({0, 0, 3, 0, 0, 5}, {.shape = {1, 2, 1, 1}});
  EXPECT_NEAR(r.out[0].value, 4, 1e-15);
  EXPECT_NEAR(r.lse[0].value, std::log(2.0), 1e-15);
}

}  // namespace oracle

// ---- cases --------------------------------------------------------------------------------------
using oracle::Attention;

// Normal queries and keys times `scale`: with 1, softmax is spread; with 8, almost all of it is on
// one key, and scores reach hundreds. A negative scale makes all queries positive and all keys
// negative, so that for keys out of bounds, whose score is 0, exp(0 - lse) is infinite.
Values projections(Problem& p, const AttentionShape& s, double scale) {
  Values qkv = p.random.normal(size_t(s.B) * s.N * 3 * s.H * s.D, 0, std::abs(scale));
  for (size_t i = 0; scale < 0 && i < qkv.size(); ++i) {
    const size_t part = i / (size_t(s.H) * s.D) % 3;
    if (part < 2) qkv[i] = part == 0 ? std::abs(qkv[i]) : -std::abs(qkv[i]);
  }
  return p.held(qkv);
}

Problem forward(DType dtype, Attention a, double scale) {
  Problem p(dtype);
  a.dtype = dtype;
  const AttentionShape& s = a.shape;
  const Values qkv = projections(p, s, scale);
  const oracle::AttentionResult r = oracle::attention_forward(qkv, a);
  p.output("out", {s.B, s.Q, s.H, s.D}, r.out);
  p.output_fp32("lse", {s.B, s.H, s.Q}, r.lse);
  p.input("qkv", {s.B, s.N, 3, s.H, s.D}, qkv);
  p.objects<StepParams>("params", {a.params});
  p.runs(AttentionForward{.shape = s, .layer = a.layer, .drop = a.drop, .dtype = dtype});
  return p;
}

Problem backward(DType dtype, Attention a, double scale) {
  Problem p(dtype);
  a.dtype = dtype;
  const AttentionShape& s = a.shape;
  const Values qkv = projections(p, s, scale);
  const Values dout = p.data(size_t(s.B) * s.Q * s.H * s.D);
  const oracle::AttentionResult r = oracle::attention_forward(qkv, a);
  const Values out = p.held(rounded(r.out)), lse = rounded(r.lse);
  p.output("dqkv", {s.B, s.N, 3, s.H, s.D}, oracle::attention_backward(dout, qkv, out, lse, a));
  p.input("dout", {s.B, s.Q, s.H, s.D}, dout), p.input("out", {s.B, s.Q, s.H, s.D}, out);
  p.input("qkv", {s.B, s.N, 3, s.H, s.D}, qkv);
  p.input_fp32("lse", {s.B, s.H, s.Q}, lse);
  p.objects<StepParams>("params", {a.params});
  p.runs(AttentionBackward{.shape = s, .layer = a.layer, .drop = a.drop, .dtype = dtype});
  return p;
}

KernelCases attention_cases() {
  KernelCases cases;
  // shape: B, N, H, D; Q
  const auto add = [&](const AttentionShape& s, double scale, float drop = 0) {
    const Attention a{.shape = s,
                      .layer = 5,
                      .drop = drop,
                      .params = {.seed = 0x123456789ABCDEFu, .epoch = 3, .position = 70}};
    const std::string name = sizes({{"B", s.B}, {"N", s.N}, {"H", s.H}, {"D", s.D}}) +
                             (s.Q < s.N ? sizes({{"Q", s.Q}}) : "") +
                             (drop > 0 ? sizes({{"dropout", int(100 * drop + 0.5f)}}) : "") +
                             flag(scale > 1, "peaked") + flag(scale < 0, "opposed");
    for (const bool back : {false, true}) {
      cases.add((back ? "attention_backward" : "attention_forward") + name,
                back ? backward : forward, a, scale);
      cases.back().cpu_only = s.D != 32 && s.D != 64 && s.D != 128;
    }
  };
  for (const int N : {1, 2, 5, 16, 17, 63, 64, 65, 197})
    for (const int D : {8, 16, 32, 64, 128})
      add({N < 63 ? 2 : 1, N, N < 63 || D == 64 ? 3 : 1, D}, 1);
  for (const int D : {16, 32, 64, 128})
    for (const int N : {1, 5, 17, 65}) {
      add({2, N, 3, D}, 1, 0.3f);
      add({1, N, 2, D}, 8);
      add({1, N, 2, D}, -8);
    }
  add({1, 197, 1, 64}, 1, 0.1f);
  add({4, 150, 3, 64}, 1);  // a block handles all queries of a head
  // More keys than a tile of scores may hold.
  add({1, 257, 1, 8}, 1);
  add({1, 257, 1, 128}, 1);
  add({1, 300, 1, 16}, 1, 0.2f);
  add({1, 300, 1, 32}, 1, 0.2f);
  add({1, 300, 2, 16}, 8);
  add({1, 300, 2, 64}, 8);
  add({1, 577, 1, 24}, 1);
  add({1, 577, 1, 64}, 1);  // 384 pixels
  add({3, 50, 7, 8}, 1);
  add({3, 50, 7, 32}, 1);
  add({1, 7, 2, 16}, 1, 1);  // drops everything
  add({1, 7, 2, 64}, 1, 1);
  add({1, 33, 16, 64}, 1);  // ViT-L's heads
  // In a ViT's last block, only the tokens that its heads read are queries.
  add({2, 17, 3, 8, 2}, 1, 0.3f);
  for (const int D : {32, 64, 128}) {
    add({2, 65, 2, D, 1}, 1, 0.3f);
    add({1, 150, 1, D, 67}, 1);
  }
  add({2, 197, 3, 64, 1}, 1);
  add({1, 577, 2, 64, 2}, 8);
  // The 198 tokens of a distilled ViT, without and with dropout; a head of 128 channels; five tiles
  // of keys.
  add({1, 198, 3, 64}, 1);
  add({1, 198, 1, 32}, 1, 0.1f);
  for (const float drop : {0.0f, 0.1f}) add({1, 110, 1, 128}, 1, drop);
  add({1, 1025, 3, 64, 70}, 1);
  // Several parts of keys per head, and more heads than the stand-in has SMs.
  add({2, 260, 2, 64, 15}, 1);
  add({2, 330, 2, 64, 130}, 1, 0.3f);

  cases.begin_sweep();
  // Every remainder of every tile.
  for (const int D : {32, 64, 128}) {
    for (int N = 1; N <= 136; ++N)
      for (const float drop : {0.0f, 0.25f})
        if (N % 16 < 3 || N % 16 > 13 || N < 40) add({1, N, 1, D}, 2, drop);
    for (const int N : {191, 192, 193, 255, 256, 384, 512, 785, 1025}) add({1, N, 1, D}, 1);
    add({5, 197, 4, D}, 1, 0.1f);
  }
  for (const int Q : {1, 16, 17, 64, 80, 81, 192, 200}) add({1, 256, 2, 64, Q}, 1, 0.3f);
  return cases;
}

// ---- the tolerance ------------------------------------------------------------------------------
// How strict the tolerance is in 16 bits, compared with the usual rule: max|out - exact| is at most
// 2 max|naive - exact|, 3 for gradients, where naive rounds scores, probabilities and all their
// gradients to 16 bits. Our tolerance applies to every element, not only to the largest error.
struct NaiveAttention {
  static constexpr AttentionShape s{.B = 1, .N = 130, .H = 1, .D = 32};
  const DType dtype;
  Values qkv, dout;
  Tensor exact_out, exact_dqkv;
  Values out, lse;  // as a forward pass saves them

  NaiveAttention(DType type, double scale) : dtype(type) {
    const Attention a{.shape = s, .dtype = dtype};
    Problem p(dtype);
    qkv = p.held(p.data(size_t(s.N) * 3 * s.D, 0, scale)), dout = p.data(size_t(s.N) * s.D);
    const oracle::AttentionResult r = oracle::attention_forward(qkv, a);
    exact_out = r.out, out = p.held(rounded(r.out)), lse = rounded(r.lse);
    exact_dqkv = oracle::attention_backward(dout, qkv, out, lse, a);
  }

  double held(double v) const { return test::held(v, dtype); }
  size_t at(int n, int which, int d) const { return (size_t(n) * 3 + which) * s.D + d; }
  double dot(int q, const Values& rows, int k, int which) const {
    double sum = 0;
    for (int d = 0; d < s.D; ++d)
      sum += (&rows == &qkv ? qkv[at(q, 0, d)] : rows[size_t(q) * s.D + d]) * qkv[at(k, which, d)];
    return sum;
  }

  void naive(Values& naive_out, Values& naive_dqkv) const {
    naive_out.assign(out.size(), 0), naive_dqkv.assign(qkv.size(), 0);
    const double scale = 1 / std::sqrt(double(s.D));
    for (int q = 0; q < s.N; ++q) {
      Values p(s.N);
      double total = 0, delta = 0;
      for (int k = 0; k < s.N; ++k) total += p[k] = std::exp(held(scale * dot(q, qkv, k, 1)));
      for (int d = 0; d < s.D; ++d) delta += dout[size_t(q) * s.D + d] * out[size_t(q) * s.D + d];
      for (int k = 0; k < s.N; ++k) {
        p[k] = held(p[k] / total);
        const double ds = held(p[k] * (held(dot(q, dout, k, 2)) - delta)) * scale;
        for (int d = 0; d < s.D; ++d) {
          naive_out[size_t(q) * s.D + d] += p[k] * qkv[at(k, 2, d)];
          naive_dqkv[at(k, 2, d)] += p[k] * dout[size_t(q) * s.D + d];
          naive_dqkv[at(q, 0, d)] += ds * qkv[at(k, 1, d)];
          naive_dqkv[at(k, 1, d)] += ds * qkv[at(q, 0, d)];
        }
      }
    }
  }

  double largest_tolerance(const Tensor& exact) const {
    double largest = 0;
    for (const Tracked& e : exact) largest = std::max(largest, tolerance(e, dtype));
    return largest;
  }
  double largest_error(const Values& naive, const Tensor& exact) const {
    double largest = 0;
    for (size_t i = 0; i < naive.size(); ++i)
      largest = std::max(largest, std::fabs(held(naive[i]) - exact[i].value));
    return largest;
  }
};

TEST(Tolerance, OfAttentionIn16BitsIsAboutTheUsualOrStricter) {
  for (const DType dtype : {DType::fp16, DType::bf16})
    for (const double scale : {1.0, 8.0}) {  // of queries and keys: softmax is spread, or peaked
      const NaiveAttention a(dtype, scale);
      Values out, dqkv;
      a.naive(out, dqkv);
      const double forward = a.largest_tolerance(a.exact_out) / a.largest_error(out, a.exact_out);
      const double backward =
          a.largest_tolerance(a.exact_dqkv) / a.largest_error(dqkv, a.exact_dqkv);
      EXPECT_LE(forward, scale > 1 ? 0.5 : 2.5);
      EXPECT_LE(backward, scale > 1 ? 0.5 : 3);
    }
}

[[maybe_unused]] const bool added = add_cases(attention_cases());

// ---- infinities, NaNs and large scores ----------------------------------------------------------
// Two heads of 70 tokens, with given bits written to places of qkv or dout.
class Special {
 public:
  Special(const Device& device, DType dtype) : device_(device), dtype_(dtype) {}

  uint16_t infinity() const { return dtype_ == DType::fp16 ? 0x7C00 : 0x7F80; }
  uint16_t nan() const { return infinity() | 0x60; }
  uint16_t large() const { return dtype_ == DType::fp16 ? 0x7400 : 0x4680; }   // 2^14
  uint16_t lowest() const { return dtype_ == DType::fp16 ? 0xFBFF : 0xC780; }  // about -2^16
  static uint16_t minus(uint16_t bits) { return bits | 0x8000; }

  struct At {
    const char* tensor;
    int token, part, head;  // part: of qkv, else 0
    uint16_t bits;
  };
  // Outputs as 16-bit words: one per element, two per element of lse.
  using Words = std::vector<uint16_t>;
  std::vector<Words> run(bool back, const std::vector<At>& places) const {
    // The scale -1 makes all queries positive.
    Problem problem = (back ? backward : forward)(dtype_, {.shape = shape}, -1);
    for (const At& place : places)
      for (Argument& argument : problem.arguments)
        if (argument.name == place.tensor) {
          const int parts = argument.name == "qkv" ? 3 : 1;
          const size_t i =
              ((size_t(place.token) * parts + place.part) * shape.H + place.head) * shape.D;
          std::memcpy(argument.before.data() + 2 * i, &place.bits, 2);
        }
    std::vector<Words> outputs;
    for (const Bytes& bytes : execute(problem, device_, 0, 0xFF).outputs) {
      outputs.emplace_back(bytes.size() / 2);
      std::memcpy(outputs.back().data(), bytes.data(), bytes.size());
    }
    return outputs;
  }

  bool is_finite(uint16_t bits) const { return (bits & infinity()) != infinity(); }
  // The values of a head's row of out or, with parts, dqkv.
  static std::span<const uint16_t> row(const Words& words, int token, int head, int parts = 1,
                                       int part = 0) {
    return std::span(words).subspan(((size_t(token) * parts + part) * shape.H + head) * shape.D,
                                    shape.D);
  }
  bool finite(std::span<const uint16_t> values) const {
    return std::ranges::all_of(values, [&](uint16_t bits) { return is_finite(bits); });
  }

  static constexpr AttentionShape shape{.B = 1, .N = 70, .H = 2, .D = 64};

 private:
  const Device& device_;
  DType dtype_;
};

TEST(Attention, InfinitiesNaNsAndLargeScoresStayInTheirRows) {
  constexpr int queries = 0, keys = 1, last = 69;
  for (const Device& device : devices_to_test())
    for (const DType dtype : {DType::fp16, DType::bf16}) {
      if (!device.unavailable.empty() || !std::ranges::count(device.dtypes, dtype)) continue;
      SCOPED_TRACE(device.name + (dtype == DType::fp16 ? " in fp16" : " in bf16"));
      const Special special(device, dtype);
      const auto usual = special.run(false, {});
      const auto without = special.run(false, {{"qkv", 3, keys, 0, special.lowest()}});
      EXPECT_TRUE(special.finite(without[0]));
      EXPECT_TRUE(special.run(false, {{"qkv", 3, keys, 0, special.minus(special.infinity())}}) ==
                  without)
          << "a key with scores -inf";
      const auto peaked = special.run(false, {{"qkv", 5, queries, 0, special.large()},
                                              {"qkv", last, keys, 0, special.large()}});
      EXPECT_TRUE(special.finite(peaked[0])) << "scores of 2^25";
      const auto of_query = special.run(false, {{"qkv", 5, queries, 1, special.nan()}}),
                 of_key = special.run(false, {{"qkv", last, keys, 1, special.nan()}}),
                 usual_back = special.run(true, {}),
                 back = special.run(true, {{"dout", 5, 0, 1, special.nan()}});
      for (int token = 0; token <= last; ++token) {
        const auto same = [&](const auto& a, const auto& b, int head) {
          return std::ranges::equal(special.row(a[0], token, head), special.row(b[0], token, head));
        };
        EXPECT_EQ(special.finite(special.row(of_query[0], token, 1)), token != 5);
        EXPECT_TRUE(token == 5 || same(of_query, usual, 1));
        EXPECT_FALSE(special.finite(special.row(of_key[0], token, 1)));
        EXPECT_TRUE(same(of_query, usual, 0) && same(of_key, usual, 0));
        for (int part = 0; part < 3; ++part) {
          EXPECT_TRUE(std::ranges::equal(special.row(back[0], token, 0, 3, part),
                                         special.row(usual_back[0], token, 0, 3, part)));
          EXPECT_EQ(special.finite(special.row(back[0], token, 1, 3, part)),
                    part == queries && token != 5);
        }
      }
    }
}

#ifdef BAREVISION_SIMT
// With few heads, each phase and round has its own block; Hopper's blocks compute several heads.
TEST(AttentionOnSimt, TheGridOfBackwardChangesNoBit) {
  const auto devices = devices_to_test();
  for (const char* const name : {"simt", "simt_hopper"}) {
    const auto device = std::ranges::find(devices, name, &Device::name);
    ASSERT_NE(device, devices.end());
    const int before = simt::multiprocessors;
    for (const AttentionShape& s : {AttentionShape{1, 130, 3, 32},
                                    {1, 130, 3, 64, 66},
                                    {2, 70, 3, 64},
                                    {3, 70, 1, 128},
                                    {1, 300, 2, 64, 70}}) {
      const Attention a{.shape = s, .layer = 5, .drop = 0.2f, .params = {.seed = 1, .epoch = 3}};
      const Problem problem = backward(DType::bf16, a, 1);
      simt::multiprocessors = 1;
      const Outcome one_block = execute(problem, *device, 0, 0xFF);
      simt::multiprocessors = before;
      const Outcome blocks = execute(problem, *device, 0, 0xFF);
      EXPECT_EQ(one_block.failures, std::vector<std::string>());
      EXPECT_EQ(blocks.failures, std::vector<std::string>());
      EXPECT_TRUE(one_block.outputs == blocks.outputs) << name << ", D " << s.D;
    }
  }
}
#endif

template <class Op>
bool refuses_attention() {
  std::vector<Refusal<Op>> list;
  list.push_back({"D", [](Op& o) { o.shape.D = 100000; }});
  list.push_back({"D", [](Op& o) { o.shape.D = 7; }, Refusal<Op>::cpu});
  for (const int D : {7, 8, 16, 48, 96, 256})
    list.push_back({"32, 64 or 128", [=](Op& o) { o.shape.D = D; }, Refusal<Op>::gpu});
  list.push_back({"Q", [](Op& o) { o.shape.Q = o.shape.N + 1; }});
  list.push_back({"B, H", [](Op& o) { o.shape.B = 1 << 16; }, Refusal<Op>::gpu});
  for (const float drop : {-0.1f, 1.1f, NAN})
    list.push_back({"drop", [=](Op& o) { o.drop = drop; }});
  return refuses(list);
}
[[maybe_unused]] const bool refused =
    refuses_attention<AttentionForward>() && refuses_attention<AttentionBackward>();

}  // namespace
}  // namespace bv::test

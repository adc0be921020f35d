#include "tests/kernels/kernel_test.h"

namespace bv::test {
namespace {

namespace oracle {

// empty targets are none.
struct LossSizes {
  int B, K;
  double smoothing = 0;
};

struct CrossEntropyResult {
  Tensor loss, lse;
};

Tracked target(const Values& targets, int label, const LossSizes& s, int row, int k) {
  const double share = targets.empty() ? double(k == label) : targets[size_t(row) * s.K + k];
  return (Tracked(1) - Tracked(s.smoothing)) * Tracked(share) + Tracked(s.smoothing) / Tracked(s.K);
}

CrossEntropyResult cross_entropy_forward(const Values& logits, const std::vector<int32_t>& labels,
                                         const Values& targets, const LossSizes& s) {
  CrossEntropyResult r{Tensor(s.B), Tensor(s.B)};
  for (int b = 0; b < s.B; ++b) {
    const double* row = &logits[size_t(b) * s.K];
    const double largest = *std::max_element(row, row + s.K);
    Tracked total = 0, matched = 0;
    for (int k = 0; k < s.K; ++k) {
      total += exp(Tracked(row[k]) - Tracked(largest));
      matched += target(targets, labels[b], s, b, k) * Tracked(row[k]);
    }
    r.lse[b] = Tracked(largest) + log(total);
    r.loss[b] = labels[b] == -1 ? Tracked(0) : r.lse[b] - matched;
  }
  return r;
}

Tensor cross_entropy_backward(const Values& logits, const Values& lse,
                              const std::vector<int32_t>& labels, const Values& targets,
                              double grad_scale, double loss_scale, const LossSizes& s) {
  Tensor dlogits(logits.size());
  for (int b = 0; b < s.B; ++b)
    for (int k = 0; k < s.K && labels[b] != -1; ++k) {
      const size_t i = size_t(b) * s.K + k;
      dlogits[i] =
          (exp(Tracked(logits[i]) - Tracked(lse[b])) - target(targets, labels[b], s, b, k)) *
          (Tracked(grad_scale) * Tracked(loss_scale));
    }
  return dlogits;
}

Values metrics(const Values& loss, const Values& logits, const std::vector<int32_t>& labels, int B,
               int K) {
  Values sums(4);
  for (int b = 0; b < B; ++b) {
    if (labels[b] == -1) continue;
    const double* row = &logits[size_t(b) * K];
    const double own = row[labels[b]];
    int ahead = std::isnan(own) ? K : 0;
    for (int k = 0; k < K; ++k) ahead += row[k] > own || (row[k] == own && k < labels[b]);
    // K classes ahead: beyond every rank, also where there are fewer than five.
    sums[0] += loss[b], sums[1] += 1;
    sums[2] += ahead < 1 && !std::isnan(own), sums[3] += ahead < 5 && !std::isnan(own);
  }
  return sums;
}

Tensor gradient_tail(const Values& loss, const StepParams& p) {
  Tracked sum = 0;
  for (double l : loss) sum += Tracked(l);
  return {sum, Tracked(p.count), Tracked(p.stop)};
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

}  // namespace oracle

struct LossOptions {
  int B, K;
  float smoothing;
  bool soft;      // soft targets
  bool absent;    // some rows have label -1
  double spread;  // of the logits
  std::string name() const {
    return sizes({{"B", B}, {"K", K}}) + flag(smoothing > 0, "smoothed") + flag(soft, "soft") +
           flag(absent, "absent") + flag(spread > 10, "peaked");
  }
};

std::vector<int32_t> labels(Problem& p, const LossOptions& o) {
  std::vector<int32_t> list;
  for (int b = 0; b < o.B; ++b) list.push_back(o.absent && b % 3 == 0 ? -1 : p.random.below(o.K));
  return list;
}

// Two classes share each image.
Values targets(Problem& p, const LossOptions& o) {
  if (!o.soft) return {};
  Values t(size_t(o.B) * o.K);
  for (int b = 0; b < o.B; ++b) {
    const double share = p.random.below(5) / 4.0;
    t[size_t(b) * o.K + p.random.below(o.K)] += share;
    t[size_t(b) * o.K + p.random.below(o.K)] += 1 - share;
  }
  return t;
}

Problem cross_entropy_forward(DType dtype, LossOptions o) {
  Problem p(dtype);
  p.any_threads = true;
  const Values logits = p.data(size_t(o.B) * o.K, 0, o.spread), soft = targets(p, o);
  const std::vector<int32_t> list = labels(p, o);
  oracle::CrossEntropyResult r = oracle::cross_entropy_forward(
      logits, list, soft, {.B = o.B, .K = o.K, .smoothing = o.smoothing});
  p.output_fp32("loss", {o.B}, r.loss), p.output_fp32("lse", {o.B}, r.lse);
  p.input("logits", {o.B, o.K}, logits);
  p.objects("labels", list);
  if (o.soft) p.input_fp32("targets", {o.B, o.K}, soft);
  p.runs(CrossEntropyForward{.shape = {o.B, o.K}, .smoothing = o.smoothing, .dtype = dtype});
  return p;
}

Problem cross_entropy_backward(DType dtype, LossOptions o) {
  Problem p(dtype);
  p.any_threads = true;
  const StepParams params{.grad_scale = 1.0f / 48};
  const UpdateState state{.loss_scale = 1024};
  Values logits = p.data(size_t(o.B) * o.K, 0, o.spread);
  const Values soft = targets(p, o);
  const std::vector<int32_t> list = labels(p, o);
  const oracle::LossSizes s{.B = o.B, .K = o.K, .smoothing = o.smoothing};
  const Values lse = rounded(oracle::cross_entropy_forward(logits, list, soft, s).lse);
  Tensor dlogits = oracle::cross_entropy_backward(logits, lse, list, soft, params.grad_scale,
                                                  state.loss_scale, s);
  // A row that isn't there gives zeros, whatever it holds.
  if (o.absent) logits[0] = std::numeric_limits<double>::quiet_NaN();
  p.output("dlogits", {o.B, o.K}, dlogits);
  p.input("logits", {o.B, o.K}, logits), p.input_fp32("lse", {o.B}, lse);
  p.objects("labels", list);
  if (o.soft) p.input_fp32("targets", {o.B, o.K}, soft);
  p.objects<StepParams>("params", {params}), p.objects<UpdateState>("state", {state});
  p.runs(CrossEntropyBackward{.shape = {o.B, o.K}, .smoothing = o.smoothing, .dtype = dtype});
  return p;
}

// Few distinct integers, so that classes tie.
Problem metrics(DType dtype, int B, int K, bool absent, bool with_nan) {
  Problem p(dtype);
  const std::vector<int32_t> list = labels(p, {.B = B, .K = K, .absent = absent});
  const Values loss = p.random.normal(B, 3);
  Values logits = p.random.integers(size_t(B) * K, 0, K > 20 ? 200 : 5);
  for (int b = 0; with_nan && b < B; ++b)  // the label's logit in every other row, or a rival's
    logits[size_t(b) * K + (b % 2 && list[b] >= 0 ? list[b] : 0)] =
        std::numeric_limits<double>::quiet_NaN();
  const Values before{10.5, 100, 20, 50};
  Values expected = oracle::metrics(loss, logits, list, B, K);
  for (int i = 0; i < 4; ++i) expected[i] += before[i];
  p.changed_objects<double>("sums", before, [=](const double* sums) -> std::string {
    const Values tolerance{1e-12 * expected[0], 0, 0, 0};
    const Comparison c = compare({sums, 4}, expected, tolerance);
    return c.ok() ? "" : c.describe(std::vector{4});
  });
  p.input_fp32("loss", {B}, loss), p.input("logits", {B, K}, logits);
  p.objects("labels", list);
  p.runs(Metrics{.shape = {B, K}, .dtype = dtype});
  return p;
}

Problem gradient_tail(DType dtype, int B, bool accumulate, bool exact) {
  Problem p(dtype);
  p.exact = exact;
  const Values loss = p.data_fp32(B, 2);
  const StepParams params{.count = float(B) - 1, .stop = 1};
  p.gradient("tail", {3}, oracle::gradient_tail(loss, params), accumulate);
  p.input_fp32("loss", {B}, loss), p.objects<StepParams>("params", {params});
  p.runs(GradientTail{.B = B, .accumulate = accumulate});
  return p;
}

KernelCases loss_cases() {
  KernelCases cases;
  struct Sizes {
    int B, K;
  };
  const auto add_cross_entropy = [&](int B, int K) {
    for (const float smoothing : {0.0f, 0.1f})
      for (const bool soft : {false, true})
        for (const double spread : {2.0, 100.0}) {
          const LossOptions o{B, K, smoothing, soft, B > 3, spread};
          cases.add("cross_entropy_forward" + o.name(), cross_entropy_forward, o);
          cases.add("cross_entropy_backward" + o.name(), cross_entropy_backward, o);
        }
  };
  const auto add_metrics = [&](int B, int K) {
    for (const bool absent : {false, true})
      for (const bool nan : {false, true})
        cases.add(
            "metrics" + sizes({{"B", B}, {"K", K}}) + flag(absent, "absent") + flag(nan, "nan"),
            metrics, B, K, absent, nan);
  };
  for (const auto& [B, K] : {Sizes{1, 1}, {3, 2}, {5, 10}, {129, 17}, {16, 1000}, {7, 1031}})
    add_cross_entropy(B, K);
  for (const auto& [B, K] : {Sizes{1, 1}, {4, 3}, {16, 10}, {64, 1000}, {1030, 7}})
    add_metrics(B, K);
  for (const int B : {1, 7, 16, 129})
    for (const bool accumulate : {false, true})
      for (const bool exact : {false, true})
        cases.add("gradient_tail" + sizes({{"B", B}}) + flag(exact, "exact") +
                      flag(accumulate, "accumulate"),
                  gradient_tail, B, accumulate, exact);
  cases.begin_sweep();
  for (const int K : sweep_of_sizes()) add_cross_entropy(6, K), add_metrics(6, K);
  return cases;
}

[[maybe_unused]] const bool added = add_cases(loss_cases());

}  // namespace
}  // namespace bv::test

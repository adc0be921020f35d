// Softmax cross-entropy and its gradient, for one head or a share of several; metrics; the
// gradient's tail.
#include <numeric>

#include "tests/kernels/kernel_cases.h"

namespace bv::test {
namespace {

using Labels = std::vector<int32_t>;
using Mixes = std::vector<Mix>;
constexpr double nan = std::numeric_limits<double>::quiet_NaN();

// ---- oracle -------------------------------------------------------------------------------------
namespace oracle {

struct CrossEntropyResult {
  Tensor loss, lse, top1;
};

// Classes that beat the label.
int ahead(const double* row, int K, int label) {
  int count = 0;
  for (int k = 0; k < K; ++k) count += row[k] > row[label] || (row[k] == row[label] && k < label);
  return count;
}

// As in timm: smoothed targets of both labels, mixed. mixes may be empty.
Tracked target(const Mixes& mixes, const Labels& labels, ClassesShape shape, double smoothing,
               int b, int k) {
  const auto smoothed = [&](int label) {
    const Tracked off = Tracked(smoothing) / shape.K;
    return k == label ? Tracked(1) - smoothing + off : off;
  };
  if (mixes.empty()) return smoothed(labels[b]);
  const double lambda = mixes[b].lambda;
  return smoothed(labels[b]) * lambda + smoothed(labels[b ^ 1]) * (Tracked(1) - lambda);
}

CrossEntropyResult cross_entropy_forward(const Values& logits, const Labels& labels,
                                         const Mixes& mixes, ClassesShape shape, double smoothing) {
  const auto [B, K] = shape;
  CrossEntropyResult r{Tensor(B), Tensor(B), Tensor(B)};
  for (int b = 0; b < B; ++b) {
    const double* row = &logits[at(b, K, 0)];
    const double largest = *std::max_element(row, row + K);
    Tracked total = 0, matched = 0;
    for (int k = 0; k < K; ++k) {
      total += exp(Tracked(row[k]) - largest);
      matched += target(mixes, labels, shape, smoothing, b, k) * row[k];
    }
    r.top1[b] = labels[b] != -1 && ahead(row, K, labels[b]) == 0;
    r.lse[b] = largest + log(total);
    r.loss[b] = labels[b] == -1 ? 0 : r.lse[b] - matched;
  }
  return r;
}

Tensor cross_entropy_backward(const Values& logits, const Values& lse, const Labels& labels,
                              const Mixes& mixes, double grad_scale, double loss_scale,
                              ClassesShape shape, double smoothing) {
  Tensor dlogits(logits.size());
  for (int b = 0; b < shape.B; ++b)
    for (int k = 0; k < shape.K && labels[b] != -1; ++k) {
      const size_t i = at(b, shape.K, k);
      dlogits[i] =
          (exp(Tracked(logits[i]) - lse[b]) - target(mixes, labels, shape, smoothing, b, k)) *
          (Tracked(grad_scale) * loss_scale);
    }
  return dlogits;
}

Tensor mean_logits(const Values& head, const Values& dist) {
  Tensor mean;
  for (size_t i = 0; i < head.size(); ++i) mean.push_back((Tracked(head[i]) + dist[i]) * 0.5);
  return mean;
}

Values metrics(const Values& loss, const Values& logits, const Labels& labels, ClassesShape shape) {
  const auto [B, K] = shape;
  Values sums(4);
  for (int b = 0; b < B; ++b) {
    if (labels[b] == -1) continue;
    const double* row = &logits[at(b, K, 0)];
    const bool counts = !std::isnan(row[labels[b]]);
    sums[0] += loss[b], sums[1] += 1;
    sums[2] += counts && ahead(row, K, labels[b]) < 1;
    sums[3] += counts && ahead(row, K, labels[b]) < 5;
  }
  return sums;
}

Tensor gradient_tail(const Values& loss, const Values& top1, const StepParams& p) {
  Tracked sum = 0;
  for (const double l : loss) sum += l;
  return {sum, p.count, p.stop, std::accumulate(top1.begin(), top1.end(), 0.0)};
}

}  // namespace oracle

// ---- the oracle's gradient ----------------------------------------------------------------------
void check_cross_entropy(bool mixed, double smoothing) {
  TestValues random(8);
  const ClassesShape shape{6, 6};
  const Labels labels{2, 3, -1, -1, 5, 5};
  Values logits = random.normal(shape.B * shape.K, 0, 3);
  const Mixes mixes = mixed ? Mixes{{0.25}, {0.8f}, {0.5}, {0.5}, {0.75}, {0}} : Mixes{};
  const auto forward = [&] {
    return oracle::cross_entropy_forward(logits, labels, mixes, shape, smoothing);
  };
  const oracle::CrossEntropyResult r = forward();
  EXPECT_EQ(r.loss[2].value, 0);
  const double grad_scale = 0.25, loss_scale = 8;
  const Values each(shape.B, grad_scale * loss_scale);
  check_gradient("logits", logits,
                 oracle::cross_entropy_backward(logits, values_of(r.lse), labels, mixes, grad_scale,
                                                loss_scale, shape, smoothing),
                 [&] { return dot(each, forward().loss); });
}

TEST(Oracle, CrossEntropy) { check_cross_entropy(false, 0); }
TEST(Oracle, CrossEntropySmoothed) { check_cross_entropy(false, 0.1); }
TEST(Oracle, CrossEntropyMixed) { check_cross_entropy(true, 0.1); }

TEST(Oracle, MetricsCountRanks) {
  // Label 3 in rows of 7: first; tied with a lower index; sixth; absent.
  const Values logits{0, 1, 2, 9, 4, 5, 6,  //
                      0, 9, 2, 9, 4, 5, 6,  //
                      9, 9, 9, 1, 9, 9, 0,  //
                      0, 1, 2, 9, 4, 5, 6};
  EXPECT_EQ(oracle::metrics({1, 2, 4, 8}, logits, {3, 3, 3, -1}, {4, 7}), (Values{7, 3, 1, 2}));
}

// ---- cases --------------------------------------------------------------------------------------
struct LossOptions {
  ClassesShape shape;
  float smoothing = 0;
  bool mixed = false;
  double spread = 1;  // of the logits; 0: few integers, so that classes tie
  float share = 1;
  bool add = false;

  bool absent() const { return shape.B > 3; }  // some rows have label -1
};

std::string name_of(ClassesShape shape) { return sizes({{"B", shape.B}, {"K", shape.K}}); }

Labels random_labels(Problem& p, ClassesShape shape, bool absent) {
  Labels labels;
  for (int b = 0; b < shape.B; ++b)
    labels.push_back(absent && b / 2 % 3 == 0 ? -1 : p.random.below(shape.K));
  return labels;
}

// Sometimes both labels of a pair are equal, or lambda is 0 or 1.
Mixes random_mixes(Problem& p, const LossOptions& o) {
  Mixes mixes;
  for (int b = 0; o.mixed && b < o.shape.B; ++b)
    mixes.push_back({.lambda = float(p.random.below(8)) / 7, .bottom = 3, .right = 3});
  return mixes;
}

Problem cross_entropy_forward(DType dtype, LossOptions o) {
  const auto [B, K] = o.shape;
  Problem p(dtype);
  p.any_threads = true;
  const size_t n = size_t(B) * K;
  const Values logits = o.spread > 0 ? p.data(n, 0, o.spread) : p.random.integers(n, 0, 2);
  const Mixes mixes = random_mixes(p, o);
  const Labels labels = random_labels(p, o.shape, o.absent());
  const oracle::CrossEntropyResult r =
      oracle::cross_entropy_forward(logits, labels, mixes, o.shape, o.smoothing);
  Tensor loss = r.loss;
  for (Tracked& x : loss) x = x * double(o.share);
  p.gradient("loss", {B}, loss, o.add);
  p.output_fp32("lse", {B}, r.lse);
  p.output_fp32("top1", {B}, r.top1);
  p.input("logits", {B, K}, logits), p.objects("labels", labels);
  if (o.mixed) p.objects("mixes", mixes);
  p.runs(CrossEntropyForward{
      .shape = o.shape, .smoothing = o.smoothing, .share = o.share, .add = o.add, .dtype = dtype});
  return p;
}

Problem cross_entropy_backward(DType dtype, LossOptions o) {
  const auto [B, K] = o.shape;
  Problem p(dtype);
  p.any_threads = true;
  const StepParams params{.grad_scale = 1.0f / 48};
  const UpdateState state{.loss_scale = 1024};
  Values logits = p.data(size_t(B) * K, 0, o.spread);
  const Mixes mixes = random_mixes(p, o);
  const Labels labels = random_labels(p, o.shape, o.absent());
  const Values lse =
      rounded(oracle::cross_entropy_forward(logits, labels, mixes, o.shape, o.smoothing).lse);
  const Tensor dlogits =
      oracle::cross_entropy_backward(logits, lse, labels, mixes, o.share * params.grad_scale,
                                     state.loss_scale, o.shape, o.smoothing);
  // A row of label -1 gives zeros, whatever its logits.
  if (o.absent()) logits[0] = nan;
  p.output("dlogits", {B, K}, dlogits);
  p.input("logits", {B, K}, logits), p.input_fp32("lse", {B}, lse), p.objects("labels", labels);
  if (o.mixed) p.objects("mixes", mixes);
  p.objects<StepParams>("params", {params}), p.objects<UpdateState>("state", {state});
  p.runs(CrossEntropyBackward{
      .shape = o.shape, .smoothing = o.smoothing, .share = o.share, .dtype = dtype});
  return p;
}

Problem mean_logits(DType dtype, ClassesShape shape) {
  const auto [B, K] = shape;
  Problem p(dtype);
  p.any_threads = true;
  const Values head = p.data(size_t(B) * K), dist = p.data(size_t(B) * K);
  p.output("out", {B, K}, oracle::mean_logits(head, dist));
  p.input("head", {B, K}, head), p.input("dist", {B, K}, dist);
  p.runs(MeanLogits{.shape = shape, .dtype = dtype});
  return p;
}

// Few distinct integers, so that classes tie.
Problem metrics(DType dtype, ClassesShape shape, bool absent, bool with_nan) {
  const auto [B, K] = shape;
  Problem p(dtype);
  const Labels labels = random_labels(p, shape, absent);
  const Values loss = p.random.normal(B, 3);
  Values logits = p.random.integers(size_t(B) * K, 0, K > 20 ? 200 : 5);
  for (int b = 0; with_nan && b < B; ++b)  // the label's logit in every other row, or a rival's
    logits[at(b, K, b % 2 && labels[b] >= 0 ? labels[b] : 0)] = nan;
  const Values before{10.5, 100, 20, 50};
  Values expected = oracle::metrics(loss, logits, labels, shape);
  for (int i = 0; i < 4; ++i) expected[i] += before[i];
  p.changed_objects<double>("sums", before, [=](const double* sums) -> std::string {
    const Comparison c = compare({sums, 4}, expected, Values{1e-12 * expected[0], 0, 0, 0});
    return c.ok() ? "" : c.describe(std::vector{4});
  });
  p.input_fp32("loss", {B}, loss), p.input("logits", {B, K}, logits), p.objects("labels", labels);
  p.runs(Metrics{.shape = shape, .dtype = dtype});
  return p;
}

Problem gradient_tail(DType dtype, int B, bool accumulate, bool exact, bool absent = false) {
  Problem p(dtype);
  p.exact = exact;
  const Values loss = absent ? Values{} : p.data_fp32(B, 2),
               top1 = absent ? Values{} : p.random.integers(B, 0, 1);
  const StepParams params{.count = float(B) - 1, .stop = 1};
  p.gradient("tail", {4}, oracle::gradient_tail(loss, top1, params), accumulate);
  if (!absent) p.input_fp32("loss", {B}, loss), p.input_fp32("top1", {B}, top1);
  p.objects<StepParams>("params", {params});
  p.runs(GradientTail{.B = B, .accumulate = accumulate});
  return p;
}

KernelCases loss_cases() {
  KernelCases cases;
  const auto add_cross_entropy = [&](ClassesShape shape) {
    for (const float smoothing : {0.0f, 0.1f})
      for (const bool mixed : {false, true})
        for (const double spread : {0.0, 2.0, 100.0}) {
          if (mixed && shape.B % 2) continue;
          const LossOptions o{shape, smoothing, mixed, spread};
          const std::string name = name_of(shape) + flag(smoothing > 0, "smoothed") +
                                   flag(mixed, "mixed") + flag(o.absent(), "absent") +
                                   flag(spread > 10, "peaked") + flag(spread == 0, "tied");
          cases.add("cross_entropy_forward" + name, cross_entropy_forward, o);
          if (spread > 0) cases.add("cross_entropy_backward" + name, cross_entropy_backward, o);
        }
  };
  // One of two heads.
  const auto add_share = [&](ClassesShape shape) {
    LossOptions o{shape, 0.1f, shape.B % 2 == 0, 2, 0.5f};
    cases.add("cross_entropy_backward" + name_of(shape) + "_share", cross_entropy_backward, o);
    for (const bool add : {false, true}) {
      o.add = add;
      cases.add("cross_entropy_forward" + name_of(shape) + "_share" + flag(add, "add"),
                cross_entropy_forward, o);
    }
    cases.add("mean_logits" + name_of(shape), mean_logits, shape);
  };
  const auto add_metrics = [&](ClassesShape shape) {
    for (const bool absent : {false, true})
      for (const bool with_nan : {false, true})
        cases.add("metrics" + name_of(shape) + flag(absent, "absent") + flag(with_nan, "nan"),
                  metrics, shape, absent, with_nan);
  };
  for (const ClassesShape shape :
       {ClassesShape{1, 1}, {2, 1}, {3, 2}, {5, 10}, {130, 17}, {16, 1000}, {8, 1031}})
    add_cross_entropy(shape);
  for (const ClassesShape shape : {ClassesShape{1, 1}, {5, 10}, {130, 17}, {16, 1000}})
    add_share(shape);
  for (const ClassesShape shape : {ClassesShape{1, 1}, {4, 3}, {16, 10}, {64, 1000}, {1030, 7}})
    add_metrics(shape);
  for (const int B : {1, 7, 16, 129})
    for (const bool accumulate : {false, true})
      for (const bool exact : {false, true})
        cases.add("gradient_tail" + sizes({{"B", B}}) + flag(exact, "exact") +
                      flag(accumulate, "accumulate"),
                  gradient_tail, B, accumulate, exact, false);
  for (const bool accumulate : {false, true})
    cases.add("gradient_tail_B5_without_loss" + flag(accumulate, "accumulate"), gradient_tail, 5,
              accumulate, false, true);
  cases.begin_sweep();
  for (const int K : sweep_of_sizes())
    add_cross_entropy({6, K}), add_share({6, K}), add_metrics({6, K});
  return cases;
}

[[maybe_unused]] const bool added = add_cases(loss_cases());

// ---- refusals -----------------------------------------------------------------------------------
template <class Op>
bool refuses_smoothing() {
  std::vector<Refusal<Op>> list;
  for (const float wrong : {-0.1f, 1.1f, float(nan)})
    list.push_back({"smoothing", [=](Op& op) { op.smoothing = wrong; }});
  return refuses<Op>(list);
}

// The CPU's kernels can read labels before they run, and so refuse invalid ones.
template <class Op>
bool refuses_labels() {
  static int32_t label;
  const auto set = [](Op& op, int32_t wrong) {
    label = wrong, op.labels = &label, op.shape.B = 1;
    if constexpr (requires { op.mixes; }) op.mixes = nullptr;
  };
  return refuses<Op>({{"labels", [=](Op& op) { set(op, op.shape.K); }, Refusal<Op>::cpu},
                      {"labels", [=](Op& op) { set(op, -2); }, Refusal<Op>::cpu}});
}

template <class Op>
bool refuses_odd_pairs() {
  static const int32_t labels[2] = {0, -1};
  static const Mix mixes[3] = {};
  const auto set = [](Op& op, int B) { op.labels = labels, op.mixes = mixes, op.shape.B = B; };
  return refuses<Op>({{"mixes", [=](Op& op) { set(op, 3); }},
                      {"labels", [=](Op& op) { set(op, 2); }, Refusal<Op>::cpu}});
}

[[maybe_unused]] const bool refused =
    refuses_smoothing<CrossEntropyForward>() && refuses_smoothing<CrossEntropyBackward>() &&
    refuses_labels<CrossEntropyForward>() && refuses_labels<CrossEntropyBackward>() &&
    refuses_labels<Metrics>() && refuses_odd_pairs<CrossEntropyForward>() &&
    refuses_odd_pairs<CrossEntropyBackward>() &&
    refuses<GradientTail>({{"loss", [](GradientTail& o) { o.loss = o.loss ? nullptr : o.tail; }}});

// Invalid labels in a GPU's memory can't be refused: they yield NaN, which ends the run.
class InvalidLabels : public testing::TestWithParam<Device> {};

TEST_P(InvalidLabels, YieldNaN) {
  const Device& device = GetParam();
  if (!device.unavailable.empty()) GTEST_SKIP() << device.unavailable;
  if (device.host_threads) return;  // refused
  const ClassesShape shape{2, 3};
  Problem p(DType::fp32);
  const auto all_nan = [](int n) {
    return [n](const float* x) -> std::string {
      return std::all_of(x, x + n, [](float f) { return std::isnan(f); }) ? "" : "not all NaN";
    };
  };
  p.changed_objects<float>("loss", {0, 0}, all_nan(2));
  p.changed_objects<float>("top1", {1, 1}, [](const float* top1) -> std::string {
    return top1[0] == 0 && top1[1] == 0 ? "" : "a hit";
  });
  p.changed_objects<float>("lse", {0, 0}, [](const float*) { return std::string(); });
  p.changed_objects<float>("dlogits", {0, 0, 0, 0, 0, 0}, all_nan(6));
  p.changed_objects<double>("sums", {0, 0, 0, 0}, [](const double* sums) -> std::string {
    return std::isnan(sums[0]) && sums[3] == 0 ? "" : "not a NaN and no hit";
  });
  p.objects<int32_t>("labels", {shape.K, -2}), p.input("logits", {2, 3}, Values(6));
  p.objects<StepParams>("params", {{}}), p.objects<UpdateState>("state", {{}});
  p.run = [=](Kernels& kernels, DeviceArguments& arguments) {
    kernels.run(bound(CrossEntropyForward{.shape = shape}, arguments, {}), nullptr);
    kernels.run(bound(CrossEntropyBackward{.shape = shape}, arguments, {}), nullptr);
    kernels.run(bound(Metrics{.shape = shape}, arguments, {}), nullptr);
  };
  for (const std::string& failure : execute(p, device, 0, 0xFF).failures) ADD_FAILURE() << failure;
}

INSTANTIATE_TEST_SUITE_P(KernelTable, InvalidLabels, testing::ValuesIn(devices_to_test()),
                         [](const auto& device) { return device.param.name; });

}  // namespace
}  // namespace bv::test

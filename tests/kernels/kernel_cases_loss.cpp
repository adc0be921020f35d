// Cross-entropy, metrics, and the words behind the gradient.
#include <cmath>
#include <limits>

#include "tests/kernels/kernel_cases.h"

namespace bv::test {
namespace {

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
  p.run = [=](Kernels& k, DeviceArguments& a) {
    launch(k, a,
           CrossEntropyForward{.loss = a.at<float>("loss"),
                               .lse = a.at<float>("lse"),
                               .logits = a.at("logits"),
                               .labels = a.at<int32_t>("labels"),
                               .targets = a.optional<float>("targets"),
                               .shape = {o.B, o.K},
                               .smoothing = o.smoothing,
                               .dtype = dtype});
  };
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
  p.run = [=](Kernels& k, DeviceArguments& a) {
    launch(k, a,
           CrossEntropyBackward{.dlogits = a.at("dlogits"),
                                .logits = a.at("logits"),
                                .lse = a.at<float>("lse"),
                                .labels = a.at<int32_t>("labels"),
                                .targets = a.optional<float>("targets"),
                                .params = a.at<StepParams>("params"),
                                .state = a.at<UpdateState>("state"),
                                .shape = {o.B, o.K},
                                .smoothing = o.smoothing,
                                .dtype = dtype});
  };
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
  p.run = [=](Kernels& k, DeviceArguments& a) {
    launch(k, a,
           Metrics{.sums = a.at<double>("sums"),
                   .loss = a.at<float>("loss"),
                   .logits = a.at("logits"),
                   .labels = a.at<int32_t>("labels"),
                   .shape = {B, K},
                   .dtype = dtype});
  };
  return p;
}

Problem gradient_tail(DType dtype, int B, bool accumulate, bool exact) {
  Problem p(dtype);
  p.exact = exact;
  const Values loss = p.data_fp32(B, 2);
  const StepParams params{.count = float(B) - 1, .stop = 1};
  p.gradient("tail", {3}, oracle::gradient_tail(loss, params), accumulate);
  p.input_fp32("loss", {B}, loss), p.objects<StepParams>("params", {params});
  p.run = [=](Kernels& k, DeviceArguments& a) {
    launch(k, a,
           GradientTail{.tail = a.at<float>("tail"),
                        .loss = a.at<float>("loss"),
                        .params = a.at<StepParams>("params"),
                        .B = B,
                        .accumulate = accumulate});
  };
  return p;
}

}  // namespace

std::vector<KernelCase> loss_cases() {
  std::vector<KernelCase> cases;
  struct Sizes {
    int B, K;
  };
  const auto add_cross_entropy = [&](int B, int K) {
    for (const float smoothing : {0.0f, 0.1f})
      for (const bool soft : {false, true})
        for (const double spread : {2.0, 100.0}) {
          const LossOptions o{B, K, smoothing, soft, B > 3, spread};
          cases.push_back({"cross_entropy_forward" + o.name(),
                           [=](DType t) { return cross_entropy_forward(t, o); }});
          cases.push_back({"cross_entropy_backward" + o.name(),
                           [=](DType t) { return cross_entropy_backward(t, o); }});
        }
  };
  const auto add_metrics = [&](int B, int K) {
    for (const bool absent : {false, true})
      for (const bool nan : {false, true})
        cases.push_back(
            {"metrics" + sizes({{"B", B}, {"K", K}}) + flag(absent, "absent") + flag(nan, "nan"),
             [=](DType t) { return metrics(t, B, K, absent, nan); }});
  };
  for (const auto& [B, K] : {Sizes{1, 1}, {3, 2}, {5, 10}, {129, 17}, {16, 1000}, {7, 1031}})
    add_cross_entropy(B, K);
  for (const auto& [B, K] : {Sizes{1, 1}, {4, 3}, {16, 10}, {64, 1000}, {1030, 7}})
    add_metrics(B, K);
  for (const int B : {1, 7, 16, 129})
    for (const bool accumulate : {false, true})
      for (const bool exact : {false, true})
        cases.push_back({"gradient_tail" + sizes({{"B", B}}) + flag(exact, "exact") +
                             flag(accumulate, "accumulate"),
                         [=](DType t) { return gradient_tail(t, B, accumulate, exact); }});
  const size_t usual = cases.size();
  for (const int K : sweep_of_sizes()) add_cross_entropy(6, K), add_metrics(6, K);
  sweep_behind(cases, usual);
  return cases;
}

}  // namespace bv::test

#include <cmath>
#include <limits>

#include "tests/kernel_cases.h"

namespace bv {
namespace {

constexpr double inf = std::numeric_limits<double>::infinity();
constexpr double nan = std::numeric_limits<double>::quiet_NaN();

std::string differs(const char* name, double actual, double expected) {
  if (actual == expected) return "";
  return std::string(name) + " is " + std::to_string(actual) + ", not " + std::to_string(expected) +
         "; ";
}

std::string compare_states(const UpdateState& s, const UpdateState& expected) {
  return differs("count", s.count, expected.count) +
         differs("found_inf", s.found_inf, expected.found_inf) +
         differs("grad_norm", s.grad_norm, expected.grad_norm) +
         differs("loss_scale", s.loss_scale, expected.loss_scale) +
         differs("good_steps", s.good_steps, expected.good_steps) +
         differs("skipped", s.skipped, expected.skipped);
}

// ---- gradient norm ------------------------------------------------------------------------------
// `bad` at element `where`, unless 0; elements of the size `scale`.
Problem gradient_norm(DType dtype, int count, double bad, int where, double scale) {
  Problem p(dtype);
  Values grad = p.random.normal(count, 0, scale);
  if (bad != 0) grad[where] = bad;
  const UpdateState before{.count = 7,
                           .found_inf = bad == 0,  // of the step before
                           .grad_norm = -1,
                           .loss_scale = 1024,
                           .good_steps = 5,
                           .skipped = 2};
  const StepParams params{.divisor = 0.75f};
  const oracle::NormResult r = oracle::gradient_norm(grad, before.loss_scale, params.divisor);
  p.changed_objects<UpdateState>("state", {before}, [=](const UpdateState* s) -> std::string {
    UpdateState expected = before;
    expected.found_inf = r.found_inf;
    UpdateState seen = *s;
    seen.grad_norm = expected.grad_norm;
    const std::string wrong = compare_states(seen, expected);
    if (!wrong.empty() || r.found_inf) return wrong;
    const double actual = s->grad_norm, tolerance = 8 * std::sqrt(r.grad_norm.variance);
    const Comparison c = compare({&actual, 1}, {&r.grad_norm.value, 1}, {&tolerance, 1});
    return c.ok() ? "" : "grad_norm: " + c.describe(std::vector{1});
  });
  p.input_fp32("grad", {count}, grad), p.objects<StepParams>("params", {params});
  p.run = [=](Kernels& k, DeviceArguments& a) {
    launch(k, a,
           GradientNorm{.state = a.at<UpdateState>("state"),
                        .grad = a.at<float>("grad"),
                        .params = a.at<StepParams>("params"),
                        .count = size_t(count)});
  };
  return p;
}

void add_norm_cases(std::vector<KernelCase>& cases) {
  const auto add = [&](const std::string& name, int count, double bad, int where, double scale) {
    cases.push_back({"gradient_norm" + sizes({{"count", count}}) + name,
                     [=](DType t) { return gradient_norm(t, count, bad, where, scale); }});
  };
  for (const int count : {1, 31, 64, 1000, 300007}) {
    add("", count, 0, 0, 1);
    add("_squares_overflow", count, 0, 0, 1e25);  // finite elements are finite
    add("_inf_first", count, inf, 0, 1);
    add("_nan_last", count, nan, count - 1, 1);
    add("_minus_inf_within", count, -inf, count / 2, 1);
  }
}

// ---- update -------------------------------------------------------------------------------------
struct UpdateOptions {
  OptimizerKind kind;
  int count;
  int t;  // of this update
  float momentum = 0;
  bool nesterov = false;
  float clip = 0;
  bool found_inf = false;
  bool exact = false;  // sgd with numbers that stay integers or halves

  bool has_m() const { return kind != OptimizerKind::sgd || momentum > 0; }
  bool has_v() const { return kind != OptimizerKind::sgd; }
  std::string name() const {
    const char* kinds[] = {"sgd", "adam", "adamw"};
    return std::string("optimizer_") + kinds[int(kind)] + sizes({{"count", count}, {"t", t}}) +
           flag(momentum > 0, "momentum") + flag(nesterov, "nesterov") +
           (clip > 0 ? "_clip" + std::to_string(int(clip)) : "") + flag(found_inf, "skipped") +
           flag(exact, "exact");
  }
};

OptimizerUpdate settings(const UpdateOptions& o) {
  return {.momentum = o.momentum,
          .beta1 = 0.9,
          .beta2 = 0.999,
          .eps = 1e-8f,
          .weight_decay = o.exact ? 0.5f : 0.05f,
          .clip = o.clip,
          .kind = o.kind,
          .nesterov = o.nesterov};
}

Problem update(DType dtype, UpdateOptions o) {
  Problem p(dtype);
  p.any_threads = true;
  p.exact = o.exact;
  const size_t n = size_t(o.count);
  const Values weight = p.data_fp32(n), m = o.has_m() ? p.data_fp32(n) : Values{};
  Values v = o.has_v() ? p.data_fp32(n) : Values{}, grad = p.data_fp32(n, 0, 100);
  for (double& e : v) e = float(e * e);
  if (n > 2) grad[1] = 0;
  if (n > 2 && !v.empty()) v[1] = 0;  // eps alone divides
  if (o.found_inf) grad[n / 2] = nan;
  std::vector<uint8_t> decay((n + OptimizerUpdate::decay_chunk - 1) / OptimizerUpdate::decay_chunk);
  for (size_t i = 0; i < decay.size(); ++i) decay[i] = i % 3 != 1;
  const StepParams params{.lr = o.exact ? 0.5f : 0.01f, .divisor = o.exact ? 1.0f : 0.75f};
  const UpdateState before{.count = o.t - 1,
                           .found_inf = o.found_inf,
                           .grad_norm = 12.5f,
                           .loss_scale = o.exact ? 1.0f : 64.0f,
                           .good_steps = 5,
                           .skipped = 2};
  const OptimizerUpdate numbers = settings(o);
  oracle::UpdateResult r;
  if (o.found_inf)  // not a bit changes
    r = {exactly(weight), exactly(m), exactly(v)}, p.exact = true;
  else
    r = oracle::optimizer_update(weight, m, v, grad, decay, params, before, numbers);
  p.output_fp32("weight", {o.count}, r.weight, weight);
  if (o.has_m()) p.output_fp32("m", {o.count}, r.m, m);
  if (o.has_v()) p.output_fp32("v", {o.count}, r.v, v);
  UpdateState after = before;
  after.count += !o.found_inf, after.skipped = o.found_inf ? 3 : 0;
  p.changed_objects<UpdateState>("state", {before},
                                 [=](const UpdateState* s) { return compare_states(*s, after); });
  p.input_fp32("grad", {o.count}, grad), p.objects("decay", decay);
  p.objects<StepParams>("params", {params});
  p.run = [=](Kernels& k, DeviceArguments& a) {
    OptimizerUpdate op = numbers;
    op.weight = a.at<float>("weight"), op.m = a.optional<float>("m");
    op.v = a.optional<float>("v"), op.state = a.at<UpdateState>("state");
    op.grad = a.at<float>("grad"), op.decay = a.at<uint8_t>("decay");
    op.params = a.at<StepParams>("params"), op.count = size_t(o.count), op.dtype = dtype;
    launch(k, a, op);
  };
  return p;
}

}  // namespace

std::vector<KernelCase> optimizer_cases() {
  std::vector<KernelCase> cases;
  add_norm_cases(cases);
  const auto add = [&](const UpdateOptions& o) {
    cases.push_back({o.name(), [=](DType t) { return update(t, o); }});
  };
  using enum OptimizerKind;
  for (const int count : {1, 64, 65, 1000, 40009})
    for (const int t : {1, 1000})
      for (const float clip : {0.0f, 1.0f, 20.0f}) {  // of a gradient whose norm is 12.5
        add({.kind = adam, .count = count, .t = t, .clip = clip});
        add({.kind = adamw, .count = count, .t = t, .clip = clip});
        add({.kind = sgd, .count = count, .t = t, .clip = clip});
        for (const bool nesterov : {false, true})
          add({.kind = sgd,
               .count = count,
               .t = t,
               .momentum = 0.9f,
               .nesterov = nesterov,
               .clip = clip});
      }
  add({.kind = adamw, .count = 300007, .t = 10, .clip = 1});
  for (const int t : {1, 2})
    for (const float momentum : {0.0f, 0.5f})
      add({.kind = sgd, .count = 1000, .t = t, .momentum = momentum, .exact = true});
  for (const int count : {1, 1000})
    for (const OptimizerKind kind : {sgd, adam, adamw})
      add({.kind = kind, .count = count, .t = 3, .momentum = 0.9f, .clip = 1, .found_inf = true});
  return cases;
}

}  // namespace bv

// Gradient norm, the optimizers' update, the loss scale, RoundWeights: oracles and cases.
// An update has no gradient to check; the loss scale's oracle is checked by runs whose expected
// states are constants.
#include "tests/kernels/kernel_cases.h"

namespace bv::test {
namespace {

// ---- oracle -------------------------------------------------------------------------------------
namespace oracle {

struct NormResult {
  bool found_inf;
  Tracked grad_norm;
};

struct UpdateResult {
  Tensor weight, m, v, ema;
};

Tensor gradient_squares(const Values& grad) {
  constexpr size_t norm_block = GradientSquares::norm_block;
  Tensor sums((grad.size() + norm_block - 1) / norm_block);
  for (size_t i = 0; i < grad.size(); ++i)
    sums[i / norm_block] += Tracked(grad[i]) * Tracked(grad[i]);
  return sums;
}

NormResult gradient_norm(const Tensor& sums, double loss_scale, double divisor) {
  Tracked squares = 0;
  for (const Tracked& sum : sums) squares += sum;
  return {!std::isfinite(squares.value), sqrt(squares) / (Tracked(loss_scale) * Tracked(divisor))};
}

UpdateState next_state(UpdateState s, const LossScaling& scaling) {
  const bool skipped = s.found_inf != 0;
  s.skipped = skipped ? s.skipped + 1 : 0;
  s.count += !skipped;
  if (scaling.growth_interval == 0) return s;
  s.good_steps = skipped ? 0 : s.good_steps + 1;
  if (skipped) s.loss_scale = std::max(scaling.smallest, s.loss_scale * scaling.backoff);
  if (s.good_steps < scaling.growth_interval) return s;
  s.good_steps = 0;
  s.loss_scale = std::min(scaling.largest, s.loss_scale * scaling.growth);
  return s;
}

UpdateResult optimizer_update(const Values& weight, const Values& m, const Values& v,
                              const Values& ema, const Values& grad,
                              const std::vector<uint8_t>& decay, const std::vector<float>& lr_scale,
                              const StepParams& p, const UpdateState& state,
                              const OptimizerUpdate& o) {
  UpdateResult r{Tensor(weight.size()), Tensor(m.size()), Tensor(v.size()), Tensor(ema.size())};
  const int t = state.count;
  const Tracked b1(o.beta1), b2(o.beta2), momentum(o.momentum);
  const Tracked correction1 = Tracked::computed(1 - std::pow(o.beta1, t), 0, 0);
  const Tracked correction2 = Tracked::computed(1 - std::pow(o.beta2, t), 0, 0);
  Tracked factor = Tracked(1) / Tracked(state.grad_divisor);
  if (o.clip > 0 && double(o.clip) < double(state.grad_norm) + 1e-6)
    factor = factor * (Tracked(o.clip) / (Tracked(state.grad_norm) + Tracked(1e-6)));
  for (size_t i = 0; i < weight.size(); ++i) {
    const size_t chunk = i / OptimizerUpdate::decay_chunk;
    const Tracked wd = decay[chunk] ? o.weight_decay : 0;
    const Tracked lr = Tracked(p.lr) * Tracked(lr_scale.empty() ? 1 : lr_scale[chunk]);
    Tracked w = weight[i], g = Tracked(grad[i]) * factor;
    if (o.kind == OptimizerKind::adamw)
      w = w - lr * wd * w;
    else
      g += wd * w;
    if (o.kind == OptimizerKind::sgd) {
      if (!m.empty()) r.m[i] = t == 1 ? g : momentum * Tracked(m[i]) + g;
      const Tracked step = m.empty() ? g : o.nesterov ? g + momentum * r.m[i] : r.m[i];
      r.weight[i] = w - lr * step;
      continue;
    }
    r.m[i] = b1 * Tracked(m[i]) + (Tracked(1) - b1) * g;
    r.v[i] = b2 * Tracked(v[i]) + (Tracked(1) - b2) * g * g;
    const Tracked denominator = sqrt(r.v[i]) / sqrt(correction2) + Tracked(o.eps);
    r.weight[i] = w - lr / correction1 * r.m[i] / denominator;
  }
  const Tracked rate = std::max<double>(o.ema_rate, 9.0 / (t + 9));
  for (size_t i = 0; i < ema.size(); ++i)
    r.ema[i] = Tracked(ema[i]) + rate * (r.weight[i] - Tracked(ema[i]));
  return r;
}

}  // namespace oracle

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
         differs("grad_divisor", s.grad_divisor, expected.grad_divisor) +
         differs("loss_scale", s.loss_scale, expected.loss_scale) +
         differs("good_steps", s.good_steps, expected.good_steps) +
         differs("skipped", s.skipped, expected.skipped);
}

// ---- cases: gradient norm -----------------------------------------------------------------------
// Every sum must be close to the expected one, or not finite if the expected one isn't.
std::string compare_sums(const double* sums, const Tensor& expected) {
  for (size_t i = 0; i < expected.size(); ++i) {
    const double want = expected[i].value, tolerance = 8 * std::sqrt(expected[i].variance);
    if (std::isfinite(want) ? !(std::abs(sums[i] - want) <= tolerance) : std::isfinite(sums[i]))
      return "sums[" + std::to_string(i) + "] is " + std::to_string(sums[i]) + ", not " +
             std::to_string(want);
  }
  return "";
}

// Random elements with a standard deviation of `scale`; `bad`, unless 0, is at element `where`.
Problem gradient_squares(DType dtype, int count, double bad, int where, double scale) {
  Problem p(dtype);
  p.any_threads = true;
  Values grad = p.random.normal(count, 0, scale);
  if (bad != 0) grad[where] = bad;
  const Tensor sums = oracle::gradient_squares(grad);
  p.changed_objects<double>("sums", Values(sums.size(), nan),
                            [=](const double* seen) { return compare_sums(seen, sums); });
  p.input_fp32("grad", {count}, grad);
  p.runs(GradientSquares{.count = size_t(count)});
  return p;
}

// Integers, so that each norm block's sum is exact: an element in the wrong block is detected.
Problem gradient_squares_exact(DType dtype, int count, int first) {
  Problem p(dtype);
  p.exact = p.any_threads = true;
  const Values grad = p.random.integers(count, -8, 8);
  Values sums(first, -1);  // other processes'
  for (const Tracked& sum : oracle::gradient_squares(grad)) sums.push_back(sum.value);
  p.changed_objects<double>("sums", Values(sums.size(), -1), [=](const double* seen) {
    return std::equal(sums.begin(), sums.end(), seen) ? "" : "a sum is not exact";
  });
  p.input_fp32("grad", {count}, grad);
  p.runs(GradientSquares{.count = size_t(count), .first = size_t(first)});
  return p;
}

// Random sums, squares of numbers with a standard deviation of `scale`; `bad` as above.
Problem gradient_norm(DType dtype, int norm_blocks, double bad, int where, double scale,
                      int growth_interval) {
  Problem p(dtype);
  Values sums = p.random.normal(norm_blocks, 0, scale);
  for (double& sum : sums) sum *= sum;
  if (bad != 0) sums[where] = bad;
  const UpdateState before{.count = 7,
                           .found_inf = bad == 0,  // from the step before
                           .grad_norm = -1,
                           .loss_scale = 1024,
                           .good_steps = 5,
                           .skipped = 2};
  const StepParams params{.divisor = 0.75f};
  const oracle::NormResult r =
      oracle::gradient_norm(exactly(sums), before.loss_scale, params.divisor);
  const LossScaling scaling{.growth_interval = growth_interval};
  p.changed_objects<UpdateState>("state", {before}, [=](const UpdateState* s) -> std::string {
    UpdateState expected = before;
    expected.found_inf = r.found_inf;
    expected.grad_divisor = 768;
    expected = oracle::next_state(expected, scaling);
    UpdateState seen = *s;
    seen.grad_norm = expected.grad_norm;
    const std::string wrong = compare_states(seen, expected);
    if (!wrong.empty() || r.found_inf) return wrong;
    const double actual = s->grad_norm, tolerance = 8 * std::sqrt(r.grad_norm.variance);
    const Comparison c = compare({&actual, 1}, {&r.grad_norm.value, 1}, {&tolerance, 1});
    return c.ok() ? "" : "grad_norm: " + c.describe(std::vector{1});
  });
  p.objects("sums", sums), p.objects<StepParams>("params", {params});
  p.runs(GradientNorm{.norm_blocks = norm_blocks, .scaling = scaling});
  return p;
}

void add_norm_cases(KernelCases& cases) {
  const auto add = [&](const std::string& name, int count, double bad, int where, double scale) {
    cases.add("gradient_squares" + sizes({{"count", count}}) + name, gradient_squares, count, bad,
              where, scale);
  };
  for (const int count : {1, 31, 64, 1000, 16384, 16385, 300007}) {
    add("", count, 0, 0, 1);
    add("_squares_overflow", count, 0, 0, 1e25);  // finite elements are finite
    add("_squares_underflow", count, 0, 0, 1e-30);
    add("_inf_first", count, inf, 0, 1);
    add("_nan_last", count, nan, count - 1, 1);
    add("_minus_inf_within", count, -inf, count / 2, 1);
    for (const int first : {0, 3})
      cases.add("gradient_squares" + sizes({{"count", count}, {"first", first}}) + "_exact",
                gradient_squares_exact, count, first);
  }
  for (const int norm_blocks : {1, 33, 1024, 18700}) {
    const auto norm = [&](const char* name, double bad, int where, double scale) {
      for (const int growth_interval : {0, 6})  // 5 good steps before
        cases.add("gradient_norm" + sizes({{"norm_blocks", norm_blocks}}) + name +
                      flag(growth_interval > 0, "scaled"),
                  gradient_norm, norm_blocks, bad, where, scale, growth_interval);
    };
    norm("", 0, 0, 1);
    norm("_large", 0, 0, 1e30);  // the norm is finite
    norm("_inf_first", inf, 0, 1);
    norm("_nan_last", nan, norm_blocks - 1, 1);
  }
}

// ---- cases: update ------------------------------------------------------------------------------
struct UpdateOptions {
  OptimizerKind kind;
  int count;
  int t;  // number of this update
  float momentum = 0;
  bool nesterov = false;
  float clip = 0;
  bool found_inf = false;
  bool exact = false;  // sgd with numbers that stay integers or halves
  bool lr_scale = false, ema = false;

  bool has_m() const { return kind != OptimizerKind::sgd || momentum > 0; }
  bool has_v() const { return kind != OptimizerKind::sgd; }
  std::string name() const {
    const char* kinds[] = {"sgd", "adam", "adamw"};
    return std::string("optimizer_") + kinds[int(kind)] + sizes({{"count", count}, {"t", t}}) +
           flag(momentum > 0, "momentum") + flag(nesterov, "nesterov") +
           (clip > 0 ? "_clip" + std::to_string(int(clip)) : "") + flag(found_inf, "skipped") +
           flag(exact, "exact") + flag(lr_scale, "lr_scale") + flag(ema, "ema");
  }
};

OptimizerUpdate operation(const UpdateOptions& o, DType dtype) {
  return {.count = size_t(o.count),
          .momentum = o.momentum,
          .beta1 = 0.9,
          .beta2 = 0.999,
          .eps = 1e-8f,
          .weight_decay = o.exact ? 0.5f : 0.05f,
          .clip = o.clip,
          .ema_rate = o.exact ? 0.5f : 0.01f,
          .kind = o.kind,
          .nesterov = o.nesterov,
          .dtype = dtype};
}

// compute_weights must be the master weights, each rounded once.
std::string compare_weights(const DeviceArguments& a, DType dtype) {
  const Values expected = held(decode(a.read("weight"), DType::fp32), dtype);
  const Values actual = decode(a.read("compute_weights"), dtype);
  const Comparison c = compare(actual, expected, Values(actual.size()));
  return c.ok() ? ""
                : "compute_weights is not weight, rounded: " +
                      c.describe(std::vector{int(actual.size())});
}

Problem update(DType dtype, UpdateOptions o) {
  Problem p(dtype);
  p.any_threads = true;
  p.exact = o.exact;
  const size_t n = size_t(o.count);
  const Values weight = p.data_fp32(n);
  Values m = o.has_m() ? p.data_fp32(n) : Values{}, v = o.has_v() ? p.data_fp32(n) : Values{};
  const Values ema = o.ema ? p.data_fp32(n) : Values{};
  Values grad = p.data_fp32(n, 0, 100);
  for (double& e : v) e = float(e * e);
  if (n > 2) grad[1] = 0;
  if (n > 2 && !v.empty()) v[1] = 0, m[1] = 0x1p-10;  // divided by eps only
  if (o.found_inf) grad[n / 2] = nan;
  std::vector<uint8_t> decay((n + OptimizerUpdate::decay_chunk - 1) / OptimizerUpdate::decay_chunk);
  for (size_t i = 0; i < decay.size(); ++i) decay[i] = i % 3 != 1;
  std::vector<float> lr_scale(o.lr_scale ? decay.size() : 0);
  for (size_t i = 0; i < lr_scale.size(); ++i)
    lr_scale[i] = o.exact ? float(1 + i % 2) : 1 / float(1 + i / 2 % 5);
  const StepParams params{.lr = o.exact ? 0.5f : 0.01f};
  const UpdateState state{.count = o.t,
                          .found_inf = o.found_inf,
                          .grad_norm = 12.5f,
                          .grad_divisor = o.exact ? 1.0f : 48.0f,
                          .loss_scale = 128};
  const OptimizerUpdate op = operation(o, dtype);
  oracle::UpdateResult r;
  if (o.found_inf)  // not a bit changes
    r = {exactly(weight), exactly(m), exactly(v), exactly(ema)}, p.exact = true;
  else
    r = oracle::optimizer_update(weight, m, v, ema, grad, decay, lr_scale, params, state, op);
  p.output_fp32("weight", {o.count}, r.weight, weight);
  if (o.has_m()) p.output_fp32("m", {o.count}, r.m, m);
  if (o.has_v()) p.output_fp32("v", {o.count}, r.v, v);
  if (o.ema) p.output_fp32("ema", {o.count}, r.ema, ema);
  if (dtype != DType::fp32 && o.found_inf) {
    const Values old = p.data(n);  // whatever it was
    p.output("compute_weights", {o.count}, exactly(old), old);
  } else if (dtype != DType::fp32) {
    p.output("compute_weights", {o.count}, r.weight);
    p.check_together = [=](const DeviceArguments& a) { return compare_weights(a, dtype); };
  }
  p.objects<UpdateState>("state", {state});
  p.input_fp32("grad", {o.count}, grad), p.objects("decay", decay);
  if (o.lr_scale) p.objects("lr_scale", lr_scale);
  p.objects<StepParams>("params", {params});
  p.runs(op);
  return p;
}

// ---- cases: loss scale --------------------------------------------------------------------------
// A sequence of gradients, each with or without overflow, and the expected state after the last,
// given as a constant, which also checks the oracle's next_state().
struct ScalingCase {
  const char* name;
  LossScaling scaling;
  float loss_scale;
  int good_steps, skipped;  // before
  const char* gradients;    // . good, x bad
  UpdateState after;        // except grad_norm
};

Problem scaling_run(DType dtype, const ScalingCase& o) {
  Problem p(dtype);
  p.exact = true;
  constexpr int n = 70;
  const Values weight = p.data(n), grad = p.data_fp32(n);
  Values bad = grad;
  bad[n - 1] = inf;
  p.output_fp32("weight", {n}, exactly(weight), weight);  // lr is 0
  if (dtype != DType::fp32) p.output("compute_weights", {n}, exactly(weight), weight);
  p.changed_objects<UpdateState>(
      "state",
      {{.count = 9, .loss_scale = o.loss_scale, .good_steps = o.good_steps, .skipped = o.skipped}},
      [=](const UpdateState* s) {
        UpdateState seen = *s;
        seen.grad_norm = o.after.grad_norm, seen.grad_divisor = o.after.grad_divisor;
        return compare_states(seen, o.after);
      });
  p.input_fp32("good", {n}, grad), p.input_fp32("bad", {n}, bad);
  p.objects("decay", std::vector<uint8_t>{0, 1}), p.objects<StepParams>("params", {{.divisor = 1}});
  p.run = [=](Kernels& k, DeviceArguments& a) {
    auto* const sums = static_cast<double*>(a.workspace(sizeof(double)));
    const GradientNorm norm{.state = a.at<UpdateState>("state"),
                            .sums = sums,
                            .params = a.at<StepParams>("params"),
                            .norm_blocks = 1,
                            .scaling = o.scaling};
    for (const char* g = o.gradients; *g; ++g) {
      const auto* const gradient = a.at<float>(*g == 'x' ? "bad" : "good");
      k.run(GradientSquares{.sums = sums, .grad = gradient, .count = n}, nullptr);
      k.run(norm, nullptr);
      launch(k, a,
             OptimizerUpdate{.weight = a.at<float>("weight"),
                             .compute_weights = a.optional("compute_weights"),
                             .state = norm.state,
                             .grad = gradient,
                             .decay = a.at<uint8_t>("decay"),
                             .params = norm.params,
                             .count = n,
                             .kind = OptimizerKind::sgd,
                             .dtype = dtype});
    }
  };
  return p;
}

void add_scaling_cases(KernelCases& cases) {
  const LossScaling every_3{.growth_interval = 3}, every_1{.growth_interval = 1}, fixed{};
  const LossScaling narrow{.smallest = 300, .largest = 3000, .growth_interval = 1};
  const LossScaling odd{.growth = 3, .backoff = 0.25f, .growth_interval = 2};
  using S = UpdateState;
  const ScalingCase list[] = {
      {"before_the_interval", every_3, 1024, 0, 2, "..",
       S{.count = 11, .loss_scale = 1024, .good_steps = 2}},
      {"grows_at_the_interval", every_3, 1024, 0, 0, "...", S{.count = 12, .loss_scale = 2048}},
      {"grows_again", every_3, 1024, 2, 0, "....", S{.count = 13, .loss_scale = 4096}},
      {"backs_off", every_3, 1024, 2, 0, "x",
       S{.count = 9, .found_inf = 1, .loss_scale = 512, .skipped = 1}},
      {"counts_anew", every_3, 1024, 2, 0, "x..",
       S{.count = 11, .loss_scale = 512, .good_steps = 2}},
      {"several_skipped", every_3, 1024, 1, 2, "xxx",
       S{.count = 9, .found_inf = 1, .loss_scale = 128, .skipped = 5}},
      {"skipped_in_a_row_only", every_3, 1024, 1, 0, "xx.x",
       S{.count = 10, .found_inf = 1, .loss_scale = 128, .skipped = 1}},
      {"floor", narrow, 1024, 0, 0, "xxxx",
       S{.count = 9, .found_inf = 1, .loss_scale = 300, .skipped = 4}},
      {"ceiling", narrow, 1024, 0, 0, "...", S{.count = 12, .loss_scale = 3000}},
      {"default_floor", every_1, 2, 0, 0, "xx",
       S{.count = 9, .found_inf = 1, .loss_scale = 1, .skipped = 2}},
      {"default_ceiling", every_1, 0x1p23f, 0, 0, "..", S{.count = 11, .loss_scale = 0x1p24f}},
      {"own_factors", odd, 1024, 0, 0, "..x",
       S{.count = 11, .found_inf = 1, .loss_scale = 768, .skipped = 1}},
      {"fixed", fixed, 1024, 5, 0, "..", S{.count = 11, .loss_scale = 1024, .good_steps = 5}},
      {"fixed_skipped", fixed, 1024, 5, 1, ".xx",
       S{.count = 10, .found_inf = 1, .loss_scale = 1024, .good_steps = 5, .skipped = 2}},
  };
  for (const ScalingCase& o : list)
    cases.add(std::string("optimizer_loss_scale_") + o.name, scaling_run, o);
}

// ---- cases: rounded weights ---------------------------------------------------------------------
Problem round_weights(DType dtype, int count) {
  Problem p(dtype);
  p.any_threads = true;
  p.exact = true;
  const Values inp = p.data_fp32(size_t(count));
  p.output("out", {count}, exactly(held(inp, dtype)));
  p.input_fp32("inp", {count}, inp);
  p.runs(RoundWeights{.count = size_t(count), .dtype = dtype});
  return p;
}

KernelCases optimizer_cases() {
  KernelCases cases;
  add_norm_cases(cases);
  add_scaling_cases(cases);
  const auto add = [&](const UpdateOptions& o) { cases.add(o.name(), update, o); };
  using enum OptimizerKind;
  for (const int count : {1, 64, 65, 1000, 40009})
    for (const int t : {1, 1000})
      for (const float clip : {0.0f, 1.0f, 20.0f}) {  // of a gradient whose norm is 12.5
        add({.kind = adam, .count = count, .t = t, .clip = clip});
        add({.kind = adamw, .count = count, .t = t, .clip = clip});
        add({.kind = sgd, .count = count, .t = t, .clip = clip});
        for (const bool nesterov : {false, true}) add({sgd, count, t, 0.9f, nesterov, clip});
      }
  add({.kind = adamw, .count = 300007, .t = 10, .clip = 1});
  for (const int t : {1, 2})
    for (const float momentum : {0.0f, 0.5f})
      add({.kind = sgd, .count = 1000, .t = t, .momentum = momentum, .exact = true});
  for (const int count : {1, 1000})
    for (const OptimizerKind kind : {sgd, adam, adamw}) add({kind, count, 3, 0.9f, false, 1, true});
  for (const int count : {1, 64, 1000, 40009})
    for (const OptimizerKind kind : {sgd, adam, adamw})
      for (const int t : {1, 1000}) {  // the average's decay: at first 1/10, then 0.99
        add({.kind = kind, .count = count, .t = t, .clip = 1, .lr_scale = true});
        add({.kind = kind, .count = count, .t = t, .momentum = 0.9f, .ema = true});
        add({.kind = kind, .count = count, .t = t, .lr_scale = true, .ema = true});
      }
  add({.kind = sgd, .count = 1000, .t = 9, .exact = true, .lr_scale = true, .ema = true});
  add({.kind = adamw, .count = 1000, .t = 3, .found_inf = true, .lr_scale = true, .ema = true});
  cases.begin_sweep();
  for (const int count : sweep_of_sizes())
    for (const OptimizerKind kind : {sgd, adam, adamw})
      add({.kind = kind, .count = count, .t = 4, .momentum = 0.9f, .clip = 1});
  return cases;
}

KernelCases rounding_cases() {
  KernelCases cases;
  for (const int count : {1, 3, 64, 1027, 40000})
    cases.add("round_weights" + sizes({{"count", count}}), round_weights, count);
  cases.in_every_dtype();
  return cases;
}

[[maybe_unused]] const bool added = add_cases(optimizer_cases()) && add_cases(rounding_cases());

using Op = OptimizerUpdate;
constexpr size_t too_many = (size_t{1} << 40) + 1;
[[maybe_unused]] const bool refused =
    refuses<GradientSquares>({{"count", [](GradientSquares& o) { o.count = 0; }},
                              {"count", [](GradientSquares& o) { o.count = too_many; }},
                              {"first", [](GradientSquares& o) { o.first = too_many; }}}) &&
    refuses<GradientNorm>(
        {{"growth_interval", [](GradientNorm& o) { o.scaling.growth_interval = -1; }}}) &&
    refuses<RoundWeights>({{"count", [](RoundWeights& o) { o.count = 0; }},
                           {"count", [](RoundWeights& o) { o.count = too_many; }}}) &&
    refuses<Op>({
        {"count", [](Op& o) { o.count = 0; }},
        {"count", [](Op& o) { o.count = too_many; }},
        {"m", [](Op& o) { o.m = nullptr, o.kind = OptimizerKind::adam; }},
        {"m", [](Op& o) { o.m = nullptr, o.kind = OptimizerKind::sgd, o.momentum = 0.9f; }},
        {"v", [](Op& o) { o.v = nullptr, o.m = o.weight, o.kind = OptimizerKind::adamw; }},
        {"compute_weights", [](Op& o) { o.compute_weights = o.weight, o.dtype = DType::fp32; }},
        {"compute_weights", [](Op& o) { o.compute_weights = nullptr, o.dtype = DType::fp16; },
         Refusal<Op>::gpu},
    });

}  // namespace
}  // namespace bv::test

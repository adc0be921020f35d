// The update of all parameters in two passes over the flat arenas; formulas: kernels.h.
//   norm    found_inf = any gradient not finite,  grad_norm = sqrt(sum grad^2) / grad_divisor;
//           then updates the loss scale's state
//   update  unscale, clip, SGD or Adam or AdamW
// The norm adds squares in double, where no finite gradient's square overflows: the sum is finite
// exactly if all gradients are. The partial sums are those of fixed norm blocks, added in order, so
// the number of threads doesn't change the result. The update processes runs of chunks that have
// the same weight decay and learning rate, and updates the moving average run by run, while the
// weights are in the cache. Bytes per element: norm 4; Adam 28, plus 2 for bf16 weights and 8 for
// the average; RoundWeights 6. Memory is the limit.
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/simd.h"

namespace bv::BAREVISION_ISA {
namespace {

using simd::fma;
using simd::for_each;
using simd::set;
using simd::vf;

constexpr size_t chunk = OptimizerUpdate::decay_chunk;

double sum_of_squares(const float* x, int n) {
  constexpr int ahead = 1024;  // without prefetching, a stream stalls at the end of every page
  simd::vd low{}, high{};
  for_each(n, [&](int i, auto lanes) {
    __builtin_prefetch(x + i + ahead);
    const vf v = lanes.load(x + i);
    const simd::vd a = simd::to_double(simd::lower(v)), b = simd::to_double(simd::upper(v));
    low += a * a;
    high += b * b;
  });
  low += high;
  double sum = 0;
  for (int i = 0; i < simd::width / 2; ++i) sum += low[i];
  return sum;
}

// One step's constants. at_rate() adapts them to an lr_scale.
struct Step {
  float factor;      // of the gradient
  float lr;          // Adam: divided by 1 - beta1^t
  float root_scale;  // 1 / sqrt(1 - beta2^t)
  float decay;       // AdamW: 1 - lr wd, if weights decay (at_rate)
  float ema_rate;    // share of the new weights in their average
  float beta1, beta2, one_minus_beta1, one_minus_beta2;
  bool first;
};

Step make_step(const OptimizerUpdate& op) {
  const int t = op.state->count;
  double factor = 1 / double(op.state->grad_divisor);
  if (op.clip > 0) {
    const double clip = op.clip / (op.state->grad_norm + 1e-6);
    factor *= clip < 1 ? clip : 1;
  }
  Step step{.factor = static_cast<float>(factor), .lr = op.params->lr, .first = t == 1};
  const float first_rate = 9.0f / static_cast<float>(t + 9);
  step.ema_rate = op.ema_rate > first_rate ? op.ema_rate : first_rate;
  if (op.kind == OptimizerKind::sgd) return step;
  const double beta1 = op.beta1, beta2 = op.beta2;
  step.lr = static_cast<float>(op.params->lr / (1 - __builtin_pow(beta1, t)));
  step.root_scale = static_cast<float>(1 / __builtin_sqrt(1 - __builtin_pow(beta2, t)));
  step.beta1 = static_cast<float>(beta1);
  step.beta2 = static_cast<float>(beta2);
  step.one_minus_beta1 = static_cast<float>(1 - beta1);
  step.one_minus_beta2 = static_cast<float>(1 - beta2);
  return step;
}

Step at_rate(Step step, const OptimizerUpdate& op, float lr_scale) {
  step.lr *= lr_scale;
  step.decay = static_cast<float>(1 - double(op.params->lr) * lr_scale * op.weight_decay);
  return step;
}

void sgd(const OptimizerUpdate& op, const Step& step, size_t begin, int n, bool decays) {
  float* weight = op.weight + begin;
  float* moment = op.m ? op.m + begin : nullptr;
  const float* grad = op.grad + begin;
  const vf wd = set(decays ? op.weight_decay : 0), momentum = set(op.momentum);
  for_each(n, [&](int i, auto lanes) {
    const vf w = lanes.load(weight + i);
    vf g = fma(wd, w, lanes.load(grad + i) * step.factor);
    if (moment) {
      const vf m = step.first ? g : fma(momentum, lanes.load(moment + i), g);
      lanes.store(moment + i, m);
      g = op.nesterov ? fma(momentum, m, g) : m;
    }
    lanes.store(weight + i, w - g * step.lr);
  });
}

void adam(const OptimizerUpdate& op, const Step& step, size_t begin, int n, bool decays) {
  float *weight = op.weight + begin, *first = op.m + begin, *second = op.v + begin;
  const float* grad = op.grad + begin;
  const bool decoupled = op.kind == OptimizerKind::adamw;
  const vf wd = set(decays && !decoupled ? op.weight_decay : 0);
  const float keep = decays && decoupled ? step.decay : 1;
  for_each(n, [&](int i, auto lanes) {
    const vf w = lanes.load(weight + i);
    const vf g = fma(wd, w, lanes.load(grad + i) * step.factor);
    const vf m = fma(set(step.beta1), lanes.load(first + i), g * step.one_minus_beta1);
    const vf v = fma(set(step.beta2), lanes.load(second + i), g * g * step.one_minus_beta2);
    lanes.store(first + i, m);
    lanes.store(second + i, v);
    const vf root = fma(simd::sqrt(v), set(step.root_scale), set(op.eps));
    lanes.store(weight + i, w * keep - m / root * step.lr);
  });
}

void average(const OptimizerUpdate& op, const Step& step, size_t begin, int n) {
  const float* weight = op.weight + begin;
  float* mean = op.ema + begin;
  const vf rate = set(step.ema_rate);
  for_each(n, [&](int i, auto lanes) {
    const vf old = lanes.load(mean + i);
    lanes.store(mean + i, fma(rate, lanes.load(weight + i) - old, old));
  });
}

template <class T>
void convert(T* out, const float* inp, int n) {
  for_each(n, [&](int i, auto lanes) { lanes.store(out + i, lanes.load(inp + i)); });
}

// Advances the count and the loss scale, for an update that is applied or skipped.
void update_state(UpdateState& state, const LossScaling& scaling) {
  const bool dynamic = scaling.growth_interval > 0;
  float scale = state.loss_scale;
  if (state.found_inf) {
    ++state.skipped;
    if (!dynamic) return;
    state.good_steps = 0;
    scale *= scaling.backoff;
    state.loss_scale = scale > scaling.smallest ? scale : scaling.smallest;
    return;
  }
  ++state.count;
  state.skipped = 0;
  if (!dynamic || ++state.good_steps < scaling.growth_interval) return;
  state.good_steps = 0;
  scale *= scaling.growth;
  state.loss_scale = scale < scaling.largest ? scale : scaling.largest;
}

void update_all(const OptimizerUpdate& op) {
  const Step step = make_step(op);
  const size_t chunks = (op.count + chunk - 1) / chunk;
  const auto alike = [&op](size_t a, size_t b) {
    return !op.decay[a] == !op.decay[b] && (!op.lr_scale || op.lr_scale[a] == op.lr_scale[b]);
  };
  constexpr size_t block = 256;  // chunks that a thread updates at a time
#pragma omp parallel for schedule(static)
  for (size_t first = 0; first < chunks; first += block) {
    const size_t last = first + block < chunks ? first + block : chunks;
    for (size_t begin = first, end; begin < last; begin = end) {
      for (end = begin + 1; end < last && alike(end, begin);) ++end;
      const size_t at = begin * chunk, stop = end * chunk < op.count ? end * chunk : op.count;
      const auto update = op.kind == OptimizerKind::sgd ? sgd : adam;
      const int n = static_cast<int>(stop - at);
      update(op, at_rate(step, op, op.lr_scale ? op.lr_scale[begin] : 1), at, n, op.decay[begin]);
      if (op.dtype == DType::bf16)
        convert(as<simd::bf16>(op.compute_weights) + at, op.weight + at, n);
      if (op.ema) average(op, step, at, n);
    }
  }
}

}  // namespace

template <>
void CpuKernels::run(const GradientSquares& op) {
  constexpr size_t norm_block = GradientSquares::norm_block;
#pragma omp parallel for schedule(static)
  for (size_t begin = 0; begin < op.count; begin += norm_block) {
    const size_t rest = op.count - begin;
    op.sums[op.first + begin / norm_block] =
        sum_of_squares(op.grad + begin, static_cast<int>(rest < norm_block ? rest : norm_block));
  }
}

template <>
void CpuKernels::run(const GradientNorm& op) {
  double sum = 0;
  for (int i = 0; i < op.norm_blocks; ++i) sum += op.sums[i];
  const double divisor = double(op.state->loss_scale) * op.params->divisor;
  op.state->found_inf = !__builtin_isfinite(sum);
  op.state->grad_norm = static_cast<float>(__builtin_sqrt(sum) / divisor);
  op.state->grad_divisor = static_cast<float>(divisor);
  update_state(*op.state, op.scaling);
}

template <>
void CpuKernels::run(const OptimizerUpdate& op) {
  if (!op.state->found_inf) update_all(op);
}

template <>
void CpuKernels::run(const RoundWeights& op) {
  with_any_type(op.dtype, [&]<class T>(T) {
    constexpr size_t block = 16384;
#pragma omp parallel for schedule(static)
    for (size_t begin = 0; begin < op.count; begin += block) {
      const size_t rest = op.count - begin;
      convert(as<T>(op.out) + begin, op.inp + begin, static_cast<int>(rest < block ? rest : block));
    }
  });
}

}  // namespace bv::BAREVISION_ISA

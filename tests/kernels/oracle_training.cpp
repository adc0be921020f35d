// Loss, metrics, optimizer.
#include <algorithm>
#include <cmath>

#include "tests/kernels/oracle.h"

namespace bv::test::oracle {
namespace {

Tracked target(const Values& targets, int label, const LossSizes& s, int row, int k) {
  const double share = targets.empty() ? double(k == label) : targets[size_t(row) * s.K + k];
  return (Tracked(1) - Tracked(s.smoothing)) * Tracked(share) + Tracked(s.smoothing) / Tracked(s.K);
}

}  // namespace

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

NormResult gradient_norm(const Values& grad, double loss_scale, double divisor) {
  NormResult r{false, 0};
  Tracked squares = 0;
  for (double g : grad) {
    r.found_inf |= !std::isfinite(g);
    squares += Tracked(g) * Tracked(g);
  }
  r.grad_norm = sqrt(squares) / (Tracked(loss_scale) * Tracked(divisor));
  return r;
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
                              const Values& grad, const std::vector<uint8_t>& decay,
                              const StepParams& p, const UpdateState& state,
                              const OptimizerUpdate& o) {
  UpdateResult r{Tensor(weight.size()), Tensor(m.size()), Tensor(v.size())};
  const int t = state.count + 1;
  const Tracked lr(p.lr), b1(o.beta1), b2(o.beta2), momentum(o.momentum);
  const Tracked correction1 = Tracked::computed(1 - std::pow(o.beta1, t), 0);
  const Tracked correction2 = Tracked::computed(1 - std::pow(o.beta2, t), 0);
  Tracked factor = Tracked(1) / (Tracked(state.loss_scale) * Tracked(p.divisor));
  if (o.clip > 0 && double(o.clip) < double(state.grad_norm) + 1e-6)
    factor = factor * (Tracked(o.clip) / (Tracked(state.grad_norm) + Tracked(1e-6)));
  for (size_t i = 0; i < weight.size(); ++i) {
    const Tracked wd = decay[i / OptimizerUpdate::decay_chunk] ? o.weight_decay : 0;
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
  return r;
}

}  // namespace bv::test::oracle

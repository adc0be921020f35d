// Softmax cross-entropy with label smoothing s, its gradient, and a batch's metrics:
//   lse = log sum_k exp(logits),   loss (+)= share * (lse - sum_k target[k] logits[k])
//   target = (1 - s) (lambda onehot(label) + (1 - lambda) onehot(partner's label)) + s / K
//   dlogits = (softmax(logits) - target) * share * grad_scale * loss_scale
// Saved for backward: lse. A row of label -1 is padding: loss and gradient are 0. The loss is
// computed from z = logits - max, so that large logits cost no precision. Threads divide the rows;
// sums over the batch are in row order. With only thousands of elements, the time doesn't matter.
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/require.h"
#include "kernels/cpu/simd.h"

namespace bv::BAREVISION_ISA {
namespace {

using simd::for_each;
using simd::set;
using simd::vf;

template <class Op>
void require_labels(const Op& op, const char* name) {
  bool good = true, paired = true;
  for (int b = 0; b < op.shape.B; ++b) {
    good &= op.labels[b] >= -1 && op.labels[b] < op.shape.K;
    if constexpr (requires { op.mixes; })
      paired &= !op.mixes || (op.labels[b] < 0) == (op.labels[b ^ 1] < 0);
  }
  require(good, name, "labels must be -1 or 0 .. K-1");
  require(paired, name, "labels: both images of a mixed pair have one or none");
}

// A row's target classes; their shares add up to 1.
struct Target {
  int label, partner;
  float share, rest;
};
template <class Op>
Target target_of(const Op& op, int b) {
  if (!op.mixes) return {op.labels[b], op.labels[b], 1, 0};
  return {op.labels[b], op.labels[b ^ 1], op.mixes[b].lambda, 1 - op.mixes[b].lambda};
}

// The number of classes that beat the label; 5 or more if its logit is NaN.
template <class T>
int rank(const T* logits, int K, int label) {
  const float own = simd::to_float(logits[label]);
  if (own != own) return K + 5;
  int ahead = 0;
  for (int k = 0; k < K; ++k) {
    const float other = simd::to_float(logits[k]);
    ahead += other > own || (other == own && k < label);
  }
  return ahead;
}

template <class T>
float max_of(const T* x, int n) {
  const vf lowest = set(-__builtin_inff());
  vf max = lowest;
  for_each(n,
           [&](int i, auto lanes) { max = simd::max(max, lanes.keep(lanes.load(x + i), lowest)); });
  return simd::reduce_max(max);
}

template <class T>
void forward_row(const CrossEntropyForward& op, int b) {
  const int K = op.shape.K;
  const T* logits = as<T>(op.logits) + size_t(b) * K;
  const Target target = target_of(op, b);
  const float max = max_of(logits, K);
  vf exps{}, all{};  // sums of e^z and of z
  for_each(K, [&](int i, auto lanes) {
    const vf z = lanes.load(logits + i) - max;
    exps += lanes.keep(simd::exp(z));
    all += lanes.keep(z);
  });
  const float log_sum = __builtin_logf(simd::reduce_sum(exps));
  op.lse[b] = max + log_sum;
  if (target.label < 0) {
    op.top1[b] = 0;
    if (!op.add) op.loss[b] = 0;
    return;
  }
  const float s = op.smoothing;
  const auto z = [&](int k) { return simd::to_float(logits[k]) - max; };
  float z_target = z(target.label);
  if (op.mixes) z_target = target.share * z_target + target.rest * z(target.partner);
  float loss = log_sum - (1 - s) * z_target;
  if (s > 0) loss -= s / K * simd::reduce_sum(all);  // 0 * inf is NaN
  loss *= op.share;
  op.loss[b] = op.add ? op.loss[b] + loss : loss;
  op.top1[b] = rank(logits, K, target.label) < 1;
}

template <class T>
void backward_row(const CrossEntropyBackward& op, int b) {
  const int K = op.shape.K;
  const T* logits = as<T>(op.logits) + size_t(b) * K;
  T* dlogits = as<T>(op.dlogits) + size_t(b) * K;
  const Target target = target_of(op, b);
  if (target.label < 0) {
    __builtin_memset(dlogits, 0, sizeof(T) * K);
    return;
  }
  const float scale = op.share * op.params->grad_scale * op.state->loss_scale;
  const float all = op.smoothing / K, own = 1 - op.smoothing, lse = op.lse[b];
  const vf of_label = set(own * target.share), of_partner = set(own * target.rest);
  for_each(K, [&](int i, auto lanes) {
    const vf p = simd::exp(lanes.load(logits + i) - lse);
    vf t = simd::select(simd::count_up() == target.label - i, of_label, vf{});
    if (op.mixes) t += simd::select(simd::count_up() == target.partner - i, of_partner, vf{});
    lanes.store(dlogits + i, (p - (t + all)) * scale);
  });
}

}  // namespace

template <>
void CpuKernels::run(const CrossEntropyForward& op) {
  require_labels(op, "CrossEntropyForward");
  with_type(op.dtype, [&]<class T>(T) {
#pragma omp parallel for schedule(static)
    for (int b = 0; b < op.shape.B; ++b) forward_row<T>(op, b);
  });
}

template <>
void CpuKernels::run(const CrossEntropyBackward& op) {
  require_labels(op, "CrossEntropyBackward");
  with_type(op.dtype, [&]<class T>(T) {
#pragma omp parallel for schedule(static)
    for (int b = 0; b < op.shape.B; ++b) backward_row<T>(op, b);
  });
}

template <>
void CpuKernels::run(const MeanLogits& op) {
  const size_t K = op.shape.K;
  with_type(op.dtype, [&]<class T>(T) {
    for (size_t row = 0; row < op.shape.B * K; row += K)
      for_each(op.shape.K, [&](int i, auto lanes) {
        const vf sum = lanes.load(as<T>(op.head) + row + i) + lanes.load(as<T>(op.dist) + row + i);
        lanes.store(as<T>(op.out) + row + i, sum * .5f);
      });
  });
}

template <>
void CpuKernels::run(const Metrics& op) {
  const auto [B, K] = op.shape;
  require_labels(op, "Metrics");
  for (int b = 0; b < B; ++b) {
    const int label = op.labels[b];
    if (label < 0) continue;
    int ahead = 0;
    with_type(op.dtype,
              [&]<class T>(T) { ahead = rank(as<T>(op.logits) + size_t(b) * K, K, label); });
    op.sums[0] += op.loss[b];
    op.sums[1] += 1;
    op.sums[2] += ahead < 1;
    op.sums[3] += ahead < 5;
  }
}

template <>
void CpuKernels::run(const GradientTail& op) {
  double loss = 0, top1 = 0;
  for (int b = 0; op.loss && b < op.B; ++b) loss += op.loss[b], top1 += op.top1[b];
  const float add[4] = {static_cast<float>(loss), op.params->count, op.params->stop,
                        static_cast<float>(top1)};
  for (int i = 0; i < 4; ++i) op.tail[i] = op.accumulate ? op.tail[i] + add[i] : add[i];
}

}  // namespace bv::BAREVISION_ISA

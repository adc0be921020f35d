// Softmax cross-entropy with label smoothing s, its gradient, and what is counted over a batch:
//   lse = log sum_k exp(logits),   loss = lse - sum_k target[k] logits[k]
//   target = (1 - s) onehot(label) + s / K,  or (1 - s) targets + s / K
//   dlogits = (softmax(logits) - target) * grad_scale * loss_scale
// Saved for backward: lse. A row of label -1 is padding: loss and gradient 0. The loss is computed
// from z = logits - max, so that large logits cost no precision. Threads share the rows; sums over
// the batch run in row order. Thousands of elements: nothing limits it.
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
  bool good = true;
  for (int b = 0; b < op.shape.B; ++b) good &= op.labels[b] >= -1 && op.labels[b] < op.shape.K;
  require(good, name, "labels must be -1 or 0 .. K-1");
}

float max_of(const float* x, int n) {
  const vf lowest = set(-__builtin_inff());
  vf max = lowest;
  for_each(n,
           [&](int i, auto lanes) { max = simd::max(max, lanes.keep(lanes.load(x + i), lowest)); });
  return simd::reduce_max(max);
}

void forward_row(const CrossEntropyForward& op, int b) {
  const int K = op.shape.K;
  const float* logits = floats(op.logits) + size_t(b) * K;
  const float* targets = op.targets ? op.targets + size_t(b) * K : nullptr;
  const int label = op.labels[b];
  const float max = max_of(logits, K);
  vf exps{}, all{}, hit{};  // sums of e^z, of z, of z times the target before smoothing
  for_each(K, [&](int i, auto lanes) {
    const vf z = lanes.load(logits + i) - max;
    exps += lanes.keep(simd::exp(z));
    all += lanes.keep(z);
    if (targets) hit += lanes.keep(lanes.load(targets + i) * z);
  });
  const float log_sum = __builtin_logf(simd::reduce_sum(exps));
  op.lse[b] = max + log_sum;
  if (label < 0) {
    op.loss[b] = 0;
    return;
  }
  const float s = op.smoothing, z_target = targets ? simd::reduce_sum(hit) : logits[label] - max;
  float loss = log_sum - (1 - s) * z_target;
  if (s > 0) loss -= s / K * simd::reduce_sum(all);  // 0 * inf is NaN
  op.loss[b] = loss;
}

void backward_row(const CrossEntropyBackward& op, int b) {
  const int K = op.shape.K;
  const float* logits = floats(op.logits) + size_t(b) * K;
  const float* targets = op.targets ? op.targets + size_t(b) * K : nullptr;
  float* dlogits = floats(op.dlogits) + size_t(b) * K;
  const int label = op.labels[b];
  if (label < 0) {
    __builtin_memset(dlogits, 0, sizeof(float) * K);
    return;
  }
  const float scale = op.params->grad_scale * op.state->loss_scale;
  const float rest = op.smoothing / K, own = 1 - op.smoothing, lse = op.lse[b];
  for_each(K, [&](int i, auto lanes) {
    const vf p = simd::exp(lanes.load(logits + i) - lse);
    const vf target = targets ? lanes.load(targets + i) * own
                              : simd::select(simd::count_up() == label - i, set(own), vf{});
    lanes.store(dlogits + i, (p - (target + rest)) * scale);
  });
}

}  // namespace

template <>
void CpuKernels::run(const CrossEntropyForward& op) {
  require_labels(op, "CrossEntropyForward");
#pragma omp parallel for schedule(static)
  for (int b = 0; b < op.shape.B; ++b) forward_row(op, b);
}

template <>
void CpuKernels::run(const CrossEntropyBackward& op) {
  require_labels(op, "CrossEntropyBackward");
#pragma omp parallel for schedule(static)
  for (int b = 0; b < op.shape.B; ++b) backward_row(op, b);
}

template <>
void CpuKernels::run(const Metrics& op) {
  const auto [B, K] = op.shape;
  require_labels(op, "Metrics");
  for (int b = 0; b < B; ++b) {
    const int label = op.labels[b];
    if (label < 0) continue;
    const float* logits = floats(op.logits) + size_t(b) * K;
    const float own = logits[label];
    int ahead = 0;  // classes that beat the label
    for (int k = 0; k < K; ++k) ahead += logits[k] > own || (logits[k] == own && k < label);
    const bool counts = own == own;
    op.sums[0] += op.loss[b];
    op.sums[1] += 1;
    op.sums[2] += counts && ahead < 1;
    op.sums[3] += counts && ahead < 5;
  }
}

template <>
void CpuKernels::run(const GradientTail& op) {
  double loss = 0;
  for (int b = 0; b < op.B; ++b) loss += op.loss[b];
  const float add[3] = {static_cast<float>(loss), op.params->count, op.params->stop};
  for (int i = 0; i < 3; ++i) op.tail[i] = op.accumulate ? op.tail[i] + add[i] : add[i];
}

}  // namespace bv::BAREVISION_ISA

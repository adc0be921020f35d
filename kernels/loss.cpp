// Softmax cross-entropy with label smoothing s, its gradient, and what is counted over a batch:
//   lse = log sum_k exp(logits),   loss = lse - sum_k target[k] logits[k]
//   target = (1 - s) onehot(label) + s / K,  or (1 - s) targets + s / K
//   dlogits = (softmax(logits) - target) * grad_scale * loss_scale
// Saved for backward: lse. Rows of label -1 aren't there: loss and gradient 0. The loss is computed
// from z = logits - max, so that it loses nothing where the logits are large. Threads share out the
// rows; sums over the batch run in the rows' order. Thousands of elements: nothing limits it.
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/require.h"
#include "kernels/cpu/simd.h"

namespace bv::BAREVISION_ISA {
namespace {

using simd::for_each;
using simd::set;
using simd::vf;

void require_labels(const int32_t* labels, int B, int K, const char* name) {
  bool good = true;
  for (int b = 0; b < B; ++b) good &= labels[b] >= -1 && labels[b] < K;
  require(good, name, "labels must be -1 or 0 .. K-1");
}

float max_of(const float* x, int n) {
  const vf least = set(-__builtin_inff());
  vf most = least;
  for_each(
      n, [&](int i, auto lanes) { most = simd::max(most, lanes.keep(lanes.load(x + i), least)); });
  return simd::reduce_max(most);
}

void forward_row(const CrossEntropyForward& op, int b) {
  const float* logits = static_cast<const float*>(op.logits) + size_t(b) * op.shape.K;
  const float* targets = op.targets ? op.targets + size_t(b) * op.shape.K : nullptr;
  const int label = op.labels[b];
  const float most = max_of(logits, op.shape.K);
  vf exps{}, all{}, hit{};  // sums of e^z, of z, of z times the target before smoothing
  for_each(op.shape.K, [&](int i, auto lanes) {
    const vf z = lanes.load(logits + i) - most;
    exps += lanes.keep(simd::exp(z));
    all += lanes.keep(z);
    if (targets) hit += lanes.keep(lanes.load(targets + i) * z);
  });
  const float log_sum = __builtin_logf(simd::reduce_sum(exps));
  op.lse[b] = most + log_sum;
  if (label < 0) {
    op.loss[b] = 0;
    return;
  }
  const float s = op.smoothing, z_target = targets ? simd::reduce_sum(hit) : logits[label] - most;
  float loss = log_sum - (1 - s) * z_target;
  if (s > 0) loss -= s / op.shape.K * simd::reduce_sum(all);  // 0 * inf is NaN
  op.loss[b] = loss;
}

void backward_row(const CrossEntropyBackward& op, int b) {
  const float* logits = static_cast<const float*>(op.logits) + size_t(b) * op.shape.K;
  const float* targets = op.targets ? op.targets + size_t(b) * op.shape.K : nullptr;
  float* dlogits = static_cast<float*>(op.dlogits) + size_t(b) * op.shape.K;
  const int label = op.labels[b];
  if (label < 0) {
    __builtin_memset(dlogits, 0, sizeof(float) * op.shape.K);
    return;
  }
  const float scale = op.params->grad_scale * op.state->loss_scale;
  const float rest = op.smoothing / op.shape.K, own = 1 - op.smoothing, lse = op.lse[b];
  for_each(op.shape.K, [&](int i, auto lanes) {
    const vf p = simd::exp(lanes.load(logits + i) - lse);
    const vf target = targets ? lanes.load(targets + i) * own
                              : simd::select(simd::count_up() == label - i, set(own), vf{});
    lanes.store(dlogits + i, (p - (target + rest)) * scale);
  });
}

}  // namespace

template <>
void CpuKernels::run(const CrossEntropyForward& op) {
  require_labels(op.labels, op.shape.B, op.shape.K, "CrossEntropyForward");
#pragma omp parallel for schedule(static)
  for (int b = 0; b < op.shape.B; ++b) forward_row(op, b);
}

template <>
void CpuKernels::run(const CrossEntropyBackward& op) {
  require_labels(op.labels, op.shape.B, op.shape.K, "CrossEntropyBackward");
#pragma omp parallel for schedule(static)
  for (int b = 0; b < op.shape.B; ++b) backward_row(op, b);
}

template <>
void CpuKernels::run(const Metrics& op) {
  require_labels(op.labels, op.shape.B, op.shape.K, "Metrics");
  for (int b = 0; b < op.shape.B; ++b) {
    const int label = op.labels[b];
    if (label < 0) continue;
    const float* logits = static_cast<const float*>(op.logits) + size_t(b) * op.shape.K;
    const float own = logits[label];
    int ahead = 0;  // classes that beat the label
    for (int k = 0; k < op.shape.K; ++k)
      ahead += logits[k] > own || (logits[k] == own && k < label);
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

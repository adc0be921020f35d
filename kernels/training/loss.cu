// Softmax cross-entropy with label smoothing s, its gradient, and a batch's metrics:
//   lse = log sum_k exp(logits),   loss (+)= share * (lse - sum_k target[k] logits[k])
//   target = (1 - s) (lambda onehot(label) + (1 - lambda) onehot(partner's label)) + s / K
//   dlogits = (softmax(logits) - target) * share * grad_scale * loss_scale
// Saved for backward: lse. A row of label -1 is padding: loss and gradient are 0. The loss is
// computed from z = logits - max, so that large logits cost no precision. An invalid label is never
// used as an index: it yields NaN, which ends the run.
//
// n: elements per access, 16 bytes' worth if K allows that, else one.
// Loss, gradient and mean of logits: a warp per row, 4 rows per block; the loss reads a row twice,
// the second time from the cache.
// Metrics: one block, since it adds in row order without a workspace; for 512 rows at a time its
// warps count the classes that beat the label, then four threads add the rows to the four sums.
// GradientTail: one block. All kernels process few elements, 2 to 4 bytes and 4 flops each: the
// launch is the limit; for metrics, it is one SM's reads of 2 KB per image with 1000 classes.
#include <math.h>

#include "kernels/cuda/plain.cuh"
#include "kernels/cuda/reduce.cuh"

namespace bv::BAREVISION_GPU {
namespace {

// A row's target classes; their shares add up to 1.
struct Target {
  int label, partner;
  float share, rest;
  bool known;  // all labels are valid
};
template <class Op>
__device__ Target target_of(const Op& op, int b) {
  const int label = op.labels[b], K = op.shape.K;
  const auto valid = [K](int k) { return k >= -1 && k < K; };
  if (!op.mixes) return {label, label, 1, 0, valid(label)};
  const int partner = op.labels[b ^ 1];
  const float share = op.mixes[b].lambda;
  const bool known = valid(label) && valid(partner) && (label < 0) == (partner < 0);
  return {label, partner, share, 1 - share, known};
}

// ---- plain --------------------------------------------------------------------------------------
// How many classes beat the label; more than K if the label is invalid or its logit is NaN.
template <class T>
__device__ int classes_ahead(const T* logits, int label, int K) {
  const float own = label >= 0 && label < K ? to_float(logits[label]) : NAN;
  int ahead = own == own ? 0 : K + 5;
  for (int k = 0; k < K; ++k) {
    const float other = to_float(logits[k]);
    ahead += other > own || (other == own && k < label);
  }
  return ahead;
}

// A thread computes an image's loss.
template <class T>
__global__ void cross_entropy_forward_plain(CrossEntropyForward op) {
  const auto [B, K] = op.shape;
  const size_t b = thread_number();
  if (b >= size_t(B)) return;
  const T* logits = as<T>(op.logits) + b * K;
  const Target target = target_of(op, b);
  float max = -INFINITY;
  double exps = 0, all = 0;  // sums of e^z and of z, z = logit - max
  for (int k = 0; k < K; ++k) max = fmaxf(max, to_float(logits[k]));
  for (int k = 0; k < K; ++k) {
    const float z = to_float(logits[k]) - max;
    exps += expf(z), all += z;
  }
  const float s = op.smoothing, log_sum = log(exps);
  float loss = NAN;
  if (target.known && target.label >= 0) {
    float hit = target.share * (to_float(logits[target.label]) - max);
    if (op.mixes) hit += target.rest * (to_float(logits[target.partner]) - max);
    loss = log_sum - (1 - s) * hit;
    if (s > 0) loss -= s / K * all;  // 0 * inf is NaN
  }
  if (target.known && target.label == -1) loss = 0;
  op.lse[b] = max + log_sum;
  op.loss[b] = op.add ? op.loss[b] + op.share * loss : op.share * loss;
  op.top1[b] = target.known && classes_ahead(logits, target.label, K) < 1;
}

template <class T>
__global__ void cross_entropy_backward_plain(CrossEntropyBackward op) {
  const auto [B, K] = op.shape;
  const size_t i = thread_number(), b = i / K;
  const int k = i % K;
  if (b >= size_t(B)) return;
  const Target target = target_of(op, b);
  float t = op.smoothing / K;
  if (k == target.label) t += (1 - op.smoothing) * target.share;
  if (k == target.partner) t += (1 - op.smoothing) * target.rest;
  float d = (expf(to_float(as<T>(op.logits)[i]) - op.lse[b]) - t) * op.share *
            op.params->grad_scale * op.state->loss_scale;
  if (target.label == -1) d = 0;
  as<T>(op.dlogits)[i] = from_float<T>(target.known ? d : NAN);
}

template <class T>
__global__ void mean_logits_plain(MeanLogits op) {
  const size_t i = thread_number();
  if (i >= size_t(op.shape.B) * op.shape.K) return;
  as<T>(op.out)[i] = from_float<T>((to_float(as<T>(op.head)[i]) + to_float(as<T>(op.dist)[i])) / 2);
}

// One thread computes all four sums.
template <class T>
__global__ void metrics_plain(Metrics op) {
  const auto [B, K] = op.shape;
  if (thread_number() > 0) return;
  for (int b = 0; b < B; ++b) {
    if (op.labels[b] == -1) continue;
    const int ahead = classes_ahead(as<T>(op.logits) + size_t(b) * K, op.labels[b], K);
    op.sums[0] += op.loss[b], op.sums[1] += 1;
    op.sums[2] += ahead < 1, op.sums[3] += ahead < 5;
  }
}

__global__ void gradient_tail_plain(GradientTail op) {
  if (thread_number() > 0) return;
  float loss = 0, top1 = 0;
  for (int b = 0; op.loss && b < op.B; ++b) loss += op.loss[b], top1 += op.top1[b];
  set_or_add(op.tail[0], loss, op.accumulate);
  set_or_add(op.tail[1], op.params->count, op.accumulate);
  set_or_add(op.tail[2], op.params->stop, op.accumulate);
  set_or_add(op.tail[3], top1, op.accumulate);
}

// ---- a warp per row -----------------------------------------------------------------------------

constexpr int threads = 128, block_rows = threads / warp_size;
constexpr int metrics_threads = 512, metrics_rows = 512, tail_threads = 256;

__device__ int lane() { return static_cast<int>(threadIdx.x) % warp_size; }
__device__ int warp() { return static_cast<int>(threadIdx.x) / warp_size; }

// Calls f(k, elements) for each run of n elements that this lane owns; k: its first column.
template <int n, class T, class F>
__device__ void for_row(const T* row, int K, F f) {
  for (int k = lane() * n; k < K; k += warp_size * n) f(k, load<n>(row + k));
}

template <class T, int n>
__global__ void __launch_bounds__(threads) cross_entropy_forward(CrossEntropyForward op) {
  await_kernel_ahead();
  const auto [B, K] = op.shape;
  const int b = static_cast<int>(blockIdx.x) * block_rows + warp();
  if (b >= B) return;  // whole warps return
  const T* logits = static_cast<const T*>(op.logits) + size_t(b) * K;
  const Target target = target_of(op, b);
  const int label = target.label;
  const float own = target.known && label >= 0 ? to_float(logits[label]) : NAN;

  float max = -INFINITY;
  for_row<n>(logits, K, [&](int, const Elements<T, n>& x) {
    for (int i = 0; i < n; ++i) max = fmaxf(max, to_float(x.at[i]));
  });
  max = warp_max(max);
  float exps = 0, all = 0;  // sums of e^z and of z
  int ahead = 0;            // classes that beat the label
  for_row<n>(logits, K, [&](int k, const Elements<T, n>& x) {
    for (int i = 0; i < n; ++i) {
      const float logit = to_float(x.at[i]), z = logit - max;
      exps += expf(z);
      all += z;
      ahead += logit > own || (logit == own && k + i < label);
    }
  });
  exps = warp_sum(exps);
  all = warp_sum(all);
  ahead = warp_sum(ahead);
  if (lane() > 0) return;
  const float log_sum = logf(exps), s = op.smoothing;
  float hit = own - max;
  if (op.mixes && own == own)
    hit = target.share * hit + target.rest * (to_float(logits[target.partner]) - max);
  float loss = log_sum - (1 - s) * hit;
  if (s > 0) loss -= s / K * all;  // 0 * inf is NaN
  const bool absent = target.known && label == -1;
  op.lse[b] = max + log_sum;
  loss = absent ? 0 : op.share * loss;
  op.loss[b] = op.add ? op.loss[b] + loss : loss;
  op.top1[b] = own == own && ahead < 1;
}

template <class T, int n>
__global__ void __launch_bounds__(threads) cross_entropy_backward(CrossEntropyBackward op) {
  await_kernel_ahead();
  const auto [B, K] = op.shape;
  const int b = static_cast<int>(blockIdx.x) * block_rows + warp();
  if (b >= B) return;
  const T* logits = static_cast<const T*>(op.logits) + size_t(b) * K;
  T* dlogits = static_cast<T*>(op.dlogits) + size_t(b) * K;
  const Target target = target_of(op, b);
  const int label = target.label, partner = target.partner;
  const bool absent = target.known && label == -1;
  const float scale = target.known ? op.share * op.params->grad_scale * op.state->loss_scale : NAN;
  const float all = op.smoothing / K, own = 1 - op.smoothing, lse = op.lse[b];
  const float of_label = own * target.share, of_partner = own * target.rest;
  for_row<n>(logits, K, [&](int k, const Elements<T, n>& x) {
    Elements<T, n> d;
    for (int i = 0; i < n; ++i) {
      const float t = (k + i == label ? of_label : 0) + (k + i == partner ? of_partner : 0);
      const float gradient = expf(to_float(x.at[i]) - lse) - (t + all);
      d.at[i] = from_float<T>(absent ? 0 : gradient * scale);
    }
    store(dlogits + k, d);
  });
}

template <class T, int n>
__global__ void __launch_bounds__(threads) mean_logits(MeanLogits op) {
  await_kernel_ahead();
  const int b = static_cast<int>(blockIdx.x) * block_rows + warp();
  if (b >= op.shape.B) return;
  const size_t row = size_t(b) * op.shape.K;
  const T* dist = static_cast<const T*>(op.dist) + row;
  T* out = static_cast<T*>(op.out) + row;
  for_row<n>(static_cast<const T*>(op.head) + row, op.shape.K, [&](int k, const Elements<T, n>& x) {
    const auto y = load<n>(dist + k);
    Elements<T, n> mean;
    for (int i = 0; i < n; ++i)
      mean.at[i] = from_float<T>((to_float(x.at[i]) + to_float(y.at[i])) / 2);
    store(out + k, mean);
  });
}

struct Counts {
  float at[metrics_rows][4];  // each row's terms of the four sums
};

template <class T, int n>
__global__ void __launch_bounds__(metrics_threads) metrics(Metrics op) {
  await_kernel_ahead();
  const auto [B, K] = op.shape;
  auto& counts = shared<Counts>();
  double sum = 0;
  if (threadIdx.x < 4) sum = op.sums[threadIdx.x];
  for (int first = 0; first < B; first += metrics_rows) {
    const int rows = B - first < metrics_rows ? B - first : metrics_rows;
    for (int r = warp(); r < rows; r += metrics_threads / warp_size) {
      const T* logits = static_cast<const T*>(op.logits) + size_t(first + r) * K;
      const int label = op.labels[first + r];
      const float own = label >= 0 && label < K ? to_float(logits[label]) : NAN;
      int ahead = 0;  // classes that beat the label
      for_row<n>(logits, K, [&](int k, const Elements<T, n>& x) {
        for (int i = 0; i < n; ++i) {
          const float other = to_float(x.at[i]);
          ahead += other > own || (other == own && k + i < label);
        }
      });
      ahead = own == own ? warp_sum(ahead) : K + 5;
      if (lane() < 4) {
        const float adds = lane() == 0   ? op.loss[first + r]
                           : lane() == 1 ? 1
                                         : float(ahead < (lane() == 2 ? 1 : 5));
        counts.at[r][lane()] = label == -1 ? 0 : adds;
      }
    }
    __syncthreads();
    if (threadIdx.x < 4)
      for (int r = 0; r < rows; ++r) sum += counts.at[r][threadIdx.x];
    __syncthreads();
  }
  if (threadIdx.x < 4) op.sums[threadIdx.x] = sum;
}

struct TailSums {
  double at[2][tail_threads / warp_size];
};

__global__ void __launch_bounds__(tail_threads) gradient_tail(GradientTail op) {
  await_kernel_ahead();
  double loss = 0, top1 = 0;
  for (int b = static_cast<int>(threadIdx.x); op.loss && b < op.B; b += tail_threads)
    loss += op.loss[b], top1 += op.top1[b];
  loss = block_sum<tail_threads>(loss, shared<TailSums>().at[0]);
  top1 = block_sum<tail_threads>(top1, shared<TailSums>().at[1]);
  if (threadIdx.x > 3) return;
  const float add = threadIdx.x == 0   ? static_cast<float>(loss)
                    : threadIdx.x == 1 ? op.params->count
                    : threadIdx.x == 2 ? op.params->stop
                                       : static_cast<float>(top1);
  float& to = op.tail[threadIdx.x];
  to = op.accumulate ? to + add : add;
}

}  // namespace

template <>
void CudaKernels::run(const CrossEntropyForward& op, cudaStream_t stream) {
  by_width(op.dtype, op.shape.K, [&]<class T, int n>() {
    launch<cross_entropy_forward<T, n>>(ceil_div(op.shape.B, block_rows), threads, 0, stream, op);
  });
}

template <>
void CudaKernels::run(const CrossEntropyBackward& op, cudaStream_t stream) {
  by_width(op.dtype, op.shape.K, [&]<class T, int n>() {
    launch<cross_entropy_backward<T, n>>(ceil_div(op.shape.B, block_rows), threads, 0, stream, op);
  });
}

template <>
void CudaKernels::run(const MeanLogits& op, cudaStream_t stream) {
  by_width(op.dtype, op.shape.K, [&]<class T, int n>() {
    launch<mean_logits<T, n>>(ceil_div(op.shape.B, block_rows), threads, 0, stream, op);
  });
}

template <>
void CudaKernels::run(const Metrics& op, cudaStream_t stream) {
  by_width(op.dtype, op.shape.K, [&]<class T, int n>() {
    launch<metrics<T, n>>(1, metrics_threads, sizeof(Counts), stream, op);
  });
}

template <>
void CudaKernels::run(const GradientTail& op, cudaStream_t stream) {
  launch<gradient_tail>(1, tail_threads, sizeof(TailSums), stream, op);
}

template <>
void PlainKernels::run(const CrossEntropyForward& op, cudaStream_t stream) {
  by_dtype(op.dtype,
           [&]<class T>() { launch_each<cross_entropy_forward_plain<T>>(op.shape.B, stream, op); });
}

template <>
void PlainKernels::run(const CrossEntropyBackward& op, cudaStream_t stream) {
  by_dtype(op.dtype, [&]<class T>() {
    launch_each<cross_entropy_backward_plain<T>>(size_t(op.shape.B) * op.shape.K, stream, op);
  });
}

template <>
void PlainKernels::run(const MeanLogits& op, cudaStream_t stream) {
  by_dtype(op.dtype, [&]<class T>() {
    launch_each<mean_logits_plain<T>>(size_t(op.shape.B) * op.shape.K, stream, op);
  });
}

template <>
void PlainKernels::run(const Metrics& op, cudaStream_t stream) {
  by_dtype(op.dtype, [&]<class T>() { launch_each<metrics_plain<T>>(1, stream, op); });
}

template <>
void PlainKernels::run(const GradientTail& op, cudaStream_t stream) {
  launch_each<gradient_tail_plain>(1, stream, op);
}

}  // namespace bv::BAREVISION_GPU

// The update of all parameters in two passes over the flat arenas; formulas: kernels.h.
//   norm    found_inf = any gradient not finite,  grad_norm = sqrt(sum grad^2) / grad_divisor; then
//           updates the loss scale's state
//   update  unscale, clip, SGD or Adam or AdamW: master weights and 16-bit compute_weights; the
//           moving average, from the weights still in registers
//
// Norm. The square of a finite gradient may overflow fp32, so the sum is in double: it is finite
// exactly if all gradients are. Consumer GPUs are too slow in fp64 to add every square as a double,
// so a thread adds the squares of 16 elements in fp32 and the result as a double; if the fp32 sum
// may have overflowed or underflowed, the 16 are added again as doubles. A thread block sums a norm
// block; one thread block adds these sums, all in fixed order. Update. A thread updates 4 elements
// in 16-byte accesses. Each thread computes the step's constants: 1 - beta^t is -expm1(t log beta),
// with log beta from the host, accurate to 2 ulp in fp32, while pow would need doubles. The kind of
// optimizer is a uniform branch, not a template parameter. A skipped update returns after reading
// found_inf.
//
// Memory is the limit: norm 4 bytes per element, AdamW 30 with compute_weights, plus 8 for the
// average (12 in a separate kernel); RoundWeights 6. Registers and blocks per SM:
// tests/kernels/resources.txt.
#include <math.h>

#include "kernels/cuda/plain.cuh"
#include "kernels/cuda/reduce.cuh"

namespace bv::BAREVISION_GPU {
namespace {

// Sets the state that the update reads, then advances the count and the loss scale.
__device__ void update_state(const GradientNorm& op, double sum) {
  const LossScaling& scaling = op.scaling;
  UpdateState s = *op.state;
  s.found_inf = !(sum < INFINITY);
  s.grad_divisor = s.loss_scale * op.params->divisor;
  s.grad_norm = static_cast<float>(sqrt(sum) / (double(s.loss_scale) * op.params->divisor));
  const bool dynamic = scaling.growth_interval > 0;
  if (s.found_inf) {
    ++s.skipped;
    if (dynamic) {
      s.good_steps = 0;
      s.loss_scale = fmaxf(scaling.smallest, s.loss_scale * scaling.backoff);
    }
  } else {
    ++s.count;
    s.skipped = 0;
    if (dynamic && ++s.good_steps >= scaling.growth_interval) {
      s.good_steps = 0;
      s.loss_scale = fminf(scaling.largest, s.loss_scale * scaling.growth);
    }
  }
  *op.state = s;
}

// ---- plain --------------------------------------------------------------------------------------
// A thread adds up a norm block.
__global__ void gradient_squares_plain(GradientSquares op) {
  const size_t block = thread_number(), first = block * GradientSquares::norm_block;
  if (first >= op.count) return;
  double sum = 0;
  for (size_t i = first; i < op.count && i < first + GradientSquares::norm_block; ++i)
    sum += double(op.grad[i]) * op.grad[i];
  op.sums[op.first + block] = sum;
}

__global__ void gradient_norm_plain(GradientNorm op) {
  if (thread_number() > 0) return;
  double sum = 0;
  for (int i = 0; i < op.norm_blocks; ++i) sum += op.sums[i];
  update_state(op, sum);
}

template <class T>
__global__ void optimizer_update_plain(OptimizerUpdate op) {
  const size_t i = thread_number(), chunk = i / OptimizerUpdate::decay_chunk;
  if (op.state->found_inf || i >= op.count) return;
  const int t = op.state->count;
  const bool decoupled = op.kind == OptimizerKind::adamw;
  const float lr = op.params->lr * (op.lr_scale ? op.lr_scale[chunk] : 1);
  const float wd = op.decay[chunk] ? op.weight_decay : 0;
  float w = op.weight[i], g = op.grad[i] / op.state->grad_divisor;
  if (op.clip > 0) g *= fminf(1, op.clip / (op.state->grad_norm + 1e-6f));
  if (decoupled)
    w -= lr * wd * w;
  else
    g += wd * w;

  if (op.kind == OptimizerKind::sgd) {
    if (op.m) {
      op.m[i] = t == 1 ? g : op.momentum * op.m[i] + g;
      g = op.nesterov ? g + op.momentum * op.m[i] : op.m[i];
    }
    w -= lr * g;
  } else {
    const auto beta1 = float(op.beta1), rest1 = float(1 - op.beta1);
    const auto beta2 = float(op.beta2), rest2 = float(1 - op.beta2);
    op.m[i] = beta1 * op.m[i] + rest1 * g;
    op.v[i] = beta2 * op.v[i] + rest2 * g * g;
    const auto bias1 = float(1 - pow(op.beta1, t)), bias2 = float(1 - pow(op.beta2, t));
    w -= lr / bias1 * op.m[i] / (sqrtf(op.v[i]) / sqrtf(bias2) + op.eps);
  }
  op.weight[i] = w;
  if (op.compute_weights) as<T>(op.compute_weights)[i] = from_float<T>(w);
  if (op.ema) op.ema[i] += fmaxf(op.ema_rate, 9.0f / (t + 9)) * (w - op.ema[i]);
}

template <class T>
__global__ void round_weights_plain(RoundWeights op) {
  const size_t i = thread_number();
  if (i < op.count) as<T>(op.out)[i] = from_float<T>(op.inp[i]);
}

// ---- packs --------------------------------------------------------------------------------------

constexpr int threads = 256, width = Pack<float>::size;

// Elements at .. at + 3; 0 past `count`.
__device__ Pack<float> load_4(const float* p, size_t at, size_t count) {
  if (at + width <= count) return load_pack(p + at);
  Pack<float> x{};
  for (int i = 0; i < width; ++i)
    if (at + i < count) x.at[i] = p[at + i];
  return x;
}

template <class T>
__device__ void store_4(T* p, const Pack<float>& x, size_t at, size_t count) {
  Elements<T, width> out;
  for (int i = 0; i < width; ++i) out.at[i] = from_float<T>(x.at[i]);
  if (at + width <= count) return store(p + at, out);
  for (int i = 0; i < width; ++i)
    if (at + i < count) p[at + i] = out.at[i];
}

// ---- norm ---------------------------------------------------------------------------------------
constexpr int norm_packs = 4, norm_rounds = 4;
static_assert(norm_rounds * norm_packs * threads * width == GradientSquares::norm_block);
constexpr int norm_threads = 1024;

template <int block>
struct Sums {
  double at[block / warp_size];
};

__device__ double sum_of_squares(const Pack<float> (&x)[norm_packs]) {
  float sum = 0;
  for (const Pack<float>& pack : x)
    for (const float e : pack.at) sum = fmaf(e, e, sum);
  // Below 2^-100, squares may have underflowed; a NaN fails both comparisons.
  if (sum > 0x1p-100f && sum < INFINITY) return sum;
  double exact = 0;
  for (const Pack<float>& pack : x)
    for (const float e : pack.at) exact += double(e) * e;
  return exact;
}

__global__ void __launch_bounds__(threads) gradient_squares(GradientSquares op) {
  await_kernel_ahead();
  const size_t first = blockIdx.x * GradientSquares::norm_block + threadIdx.x * width;
  double sum = 0;
  for (int round = 0; round < norm_rounds; ++round) {
    Pack<float> x[norm_packs];
    for (int i = 0; i < norm_packs; ++i)
      x[i] = load_4(op.grad, first + size_t(round * norm_packs + i) * threads * width, op.count);
    sum += sum_of_squares(x);
  }
  sum = block_sum<threads>(sum, shared<Sums<threads>>().at);
  if (threadIdx.x == 0) op.sums[op.first + blockIdx.x] = sum;
}

__global__ void __launch_bounds__(norm_threads) gradient_norm(GradientNorm op) {
  await_kernel_ahead();
  double sum = 0;
  for (int i = threadIdx.x; i < op.norm_blocks; i += norm_threads) sum += op.sums[i];
  sum = block_sum<norm_threads>(sum, shared<Sums<norm_threads>>().at);
  if (threadIdx.x == 0) update_state(op, sum);
}

// ---- update -------------------------------------------------------------------------------------
// Computed from beta1 and beta2 by the host, in double.
struct Betas {
  float beta1, beta2, one_minus_beta1, one_minus_beta2, log_beta1, log_beta2;
};

// One step's constants, the same for all elements with the same lr_scale.
struct Step {
  float factor;      // of the gradient
  float lr;          // Adam: divided by 1 - beta1^t
  float root_scale;  // 1 / sqrt(1 - beta2^t)
  float decay;       // AdamW: 1 - lr wd, where weights decay
  bool first;
};

__device__ Step make_step(const OptimizerUpdate& op, const Betas& betas, float lr_scale) {
  const int t = op.state->count;
  Step step{};
  step.factor = 1 / op.state->grad_divisor;
  if (op.clip > 0) step.factor *= fminf(1, op.clip / (op.state->grad_norm + 1e-6f));
  step.lr = op.params->lr * lr_scale;
  step.first = t == 1;
  if (op.kind == OptimizerKind::sgd) return step;
  step.decay = fmaf(-step.lr, op.weight_decay, 1);
  step.lr /= -expm1f(float(t) * betas.log_beta1);
  step.root_scale = 1 / sqrtf(-expm1f(float(t) * betas.log_beta2));
  return step;
}

// `m` is null without momentum.
__device__ float sgd(const OptimizerUpdate& op, const Step& step, bool decays, float w, float grad,
                     float* m) {
  float g = fmaf(decays ? op.weight_decay : 0, w, grad * step.factor);
  if (m) {
    *m = step.first ? g : fmaf(op.momentum, *m, g);
    g = op.nesterov ? fmaf(op.momentum, *m, g) : *m;
  }
  return w - g * step.lr;
}

__device__ float adam(const OptimizerUpdate& op, const Betas& betas, const Step& step, bool decays,
                      float w, float grad, float& m, float& v) {
  const bool decoupled = op.kind == OptimizerKind::adamw;
  const float g = fmaf(decays && !decoupled ? op.weight_decay : 0, w, grad * step.factor);
  m = fmaf(betas.beta1, m, g * betas.one_minus_beta1);
  v = fmaf(betas.beta2, v, g * g * betas.one_minus_beta2);
  const float root = fmaf(sqrtf(v), step.root_scale, op.eps);
  return w * (decays && decoupled ? step.decay : 1) - m / root * step.lr;
}

// T: the type of compute_weights; float: there are none.
template <class T>
__global__ void __launch_bounds__(threads) optimizer_update(OptimizerUpdate op, Betas betas) {
  await_kernel_ahead();
  const size_t at = (size_t(blockIdx.x) * threads + threadIdx.x) * width;
  if (op.state->found_inf || at >= op.count) return;
  const Pack<float> grad = load_4(op.grad, at, op.count);
  Pack<float> w = load_4(op.weight, at, op.count), m{}, v{};
  if (op.m) m = load_4(op.m, at, op.count);
  if (op.v) v = load_4(op.v, at, op.count);
  const size_t chunk = at / OptimizerUpdate::decay_chunk;
  const bool decays = op.decay[chunk];
  const Step step = make_step(op, betas, op.lr_scale ? op.lr_scale[chunk] : 1);
  if (op.kind == OptimizerKind::sgd) {
    for (int i = 0; i < width; ++i)
      w.at[i] = sgd(op, step, decays, w.at[i], grad.at[i], op.m ? &m.at[i] : nullptr);
  } else {
    for (int i = 0; i < width; ++i)
      w.at[i] = adam(op, betas, step, decays, w.at[i], grad.at[i], m.at[i], v.at[i]);
  }
  store_4(op.weight, w, at, op.count);
  if constexpr (!std::is_same_v<T, float>)
    store_4(static_cast<T*>(op.compute_weights), w, at, op.count);
  if (op.m) store_4(op.m, m, at, op.count);
  if (op.v) store_4(op.v, v, at, op.count);
  if (!op.ema) return;
  const float rate = fmaxf(op.ema_rate, 9 / float(op.state->count + 9));
  Pack<float> mean = load_4(op.ema, at, op.count);
  for (int i = 0; i < width; ++i) mean.at[i] = fmaf(rate, w.at[i] - mean.at[i], mean.at[i]);
  store_4(op.ema, mean, at, op.count);
}

// ---- rounded weights ----------------------------------------------------------------------------
template <class T>
__global__ void __launch_bounds__(threads) round_weights(RoundWeights op) {
  await_kernel_ahead();
  const size_t at = (size_t(blockIdx.x) * threads + threadIdx.x) * width;
  if (at < op.count) store_4(static_cast<T*>(op.out), load_4(op.inp, at, op.count), at, op.count);
}

unsigned blocks_of(size_t count) {
  return static_cast<unsigned>(ceil_div(count, size_t{threads} * width));
}

}  // namespace

template <>
void CudaKernels::run(const GradientSquares& op, cudaStream_t stream) {
  const auto norm_blocks = static_cast<unsigned>(ceil_div(op.count, GradientSquares::norm_block));
  launch<gradient_squares>(norm_blocks, threads, sizeof(Sums<threads>), stream, op);
}

template <>
void CudaKernels::run(const GradientNorm& op, cudaStream_t stream) {
  launch<gradient_norm>(1, norm_threads, sizeof(Sums<norm_threads>), stream, op);
}

template <>
void CudaKernels::run(const OptimizerUpdate& op, cudaStream_t stream) {
  const Betas betas{.beta1 = static_cast<float>(op.beta1),
                    .beta2 = static_cast<float>(op.beta2),
                    .one_minus_beta1 = static_cast<float>(1 - op.beta1),
                    .one_minus_beta2 = static_cast<float>(1 - op.beta2),
                    .log_beta1 = static_cast<float>(log(op.beta1)),
                    .log_beta2 = static_cast<float>(log(op.beta2))};
  by_dtype(op.dtype, [&]<class T>() {
    launch<optimizer_update<T>>(blocks_of(op.count), threads, 0, stream, op, betas);
  });
}

template <>
void CudaKernels::run(const RoundWeights& op, cudaStream_t stream) {
  by_dtype(op.dtype, [&]<class T>() {
    launch<round_weights<T>>(blocks_of(op.count), threads, 0, stream, op);
  });
}

template <>
void PlainKernels::run(const GradientSquares& op, cudaStream_t stream) {
  launch_each<gradient_squares_plain>(ceil_div(op.count, GradientSquares::norm_block), stream, op);
}

template <>
void PlainKernels::run(const GradientNorm& op, cudaStream_t stream) {
  launch_each<gradient_norm_plain>(1, stream, op);
}

template <>
void PlainKernels::run(const OptimizerUpdate& op, cudaStream_t stream) {
  by_dtype(op.dtype,
           [&]<class T>() { launch_each<optimizer_update_plain<T>>(op.count, stream, op); });
}

template <>
void PlainKernels::run(const RoundWeights& op, cudaStream_t stream) {
  by_dtype(op.dtype, [&]<class T>() { launch_each<round_weights_plain<T>>(op.count, stream, op); });
}

}  // namespace bv::BAREVISION_GPU

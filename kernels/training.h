// Operations of the loss and of an update. kernels/kernels.h says how to read them.
#pragma once
#include <cstddef>
#include <cstdint>

#include "kernels/arguments.h"
#include "kernels/types.h"

namespace bv {

// ---- loss ---------------------------------------------------------------------------------------
struct ClassesShape {
  int B, K;  // images, classes
};

// Softmax cross-entropy with label smoothing s (Szegedy et al. 2016):
//   loss[b] = lse[b] - sum_k target[b, k] logits[b, k],   lse = log sum_k exp(logits)
//   target[b] = (1 - s) (lambda[b] onehot(label[b]) + (1 - lambda[b]) onehot(label[b ^ 1])) + s / K
// with lambda 1 if nothing is mixed. A label of -1 marks a padding row: its loss is 0, and its
// partner's label is -1 as well. top1: label[b] has the largest logit, as Metrics counts it.
// A model with several heads adds `share` times each head's loss.
struct CrossEntropyForward {
  float* loss;            // [B]  = share loss, or with `add` += share loss
  float* lse;             // [B]  =, saved for backward
  float* top1;            // [B]  =, 0 or 1
  const void* logits;     // [B, K] dtype
  const int32_t* labels;  // [B], each -1 or 0 .. K-1
  const Mix* mixes;       // [B], B even: lambda; null: nothing is mixed
  ClassesShape shape;
  float smoothing;
  float share = 1;
  bool add = false;
  DType dtype;
  void describe(Arguments&) const;
};

// dlogits = (softmax(logits) - target) * share * params->grad_scale * state->loss_scale
// 0 in rows of label -1
struct CrossEntropyBackward {
  void* dlogits;          // [B, K] dtype  =
  const void* logits;     // [B, K] dtype
  const float* lse;       // [B]
  const int32_t* labels;  // [B]
  const Mix* mixes;       // [B] or null
  const StepParams* params;
  const UpdateState* state;
  ClassesShape shape;
  float smoothing;
  float share = 1;
  DType dtype;
  void describe(Arguments&) const;
};

// out = (head + dist) / 2: the logits of a model with two heads, for evaluation and accuracy.
struct MeanLogits {
  void* out;                // [B, K] dtype  =
  const void *head, *dist;  // [B, K] dtype
  ClassesShape shape;
  DType dtype;
  void describe(Arguments&) const;
};

// Sums over the images of several batches, in the order of the rows; rows with label -1 don't
// count.
//   sums[0] += loss,   sums[1] += 1,
//   sums[2] += label has the largest logit,   sums[3] += label is among the 5 largest
// A class beats the label if its logit is larger, or equal and its index lower; a NaN logit of the
// label never counts.
struct Metrics {
  double* sums;           // [4]  +=
  const float* loss;      // [B]
  const void* logits;     // [B, K] dtype
  const int32_t* labels;  // [B]
  ClassesShape shape;
  DType dtype;
  void describe(Arguments&) const;
};

// Four words, stored after the last parameter's gradient and all-reduced with the gradients:
//   tail[0] (+)= sum of loss,   tail[1] (+)= params->count,   tail[2] (+)= params->stop,
//   tail[3] (+)= sum of top1
struct GradientTail {
  float* tail;        // [4]  = or +=, per accumulate
  const float* loss;  // [B]; null, like top1, if this process doesn't compute the loss: adds 0
  const float* top1;  // [B]
  const StepParams* params;
  int B;
  bool accumulate;
  void describe(Arguments&) const;
};

// ---- optimizer ----------------------------------------------------------------------------------
// One pass over a flat gradient, block by block: sums[first + i] = sum of the squares of norm block
// i's elements, which is finite if all elements are. Norm blocks have the same length on all
// devices, and a part of a model that may run in a process of its own begins at a norm block, so
// that the sums don't depend on the number of processes.
struct GradientSquares {
  static constexpr size_t norm_block = 16384;

  double* sums;       // [first + ceil(count / norm_block)]  = from sums[first] on
  const float* grad;  // [count]
  size_t count;
  size_t first = 0;
  void describe(Arguments&) const;
};

// From the sums of all norm blocks of the model: state->found_inf = their total is not finite, and
//   state->grad_divisor = state->loss_scale * params->divisor
//   state->grad_norm = sqrt(sums) / state->grad_divisor
// Then the count and the loss scale are updated:
//   found_inf:  skipped += 1;  with a growth_interval: good_steps = 0,
//               loss_scale = max(smallest, loss_scale * backoff)
//   else:       count += 1, skipped = 0;  with a growth_interval: good_steps += 1, and when
//               good_steps reaches the interval: good_steps = 0,
//               loss_scale = min(largest, loss_scale * growth)
struct GradientNorm {
  UpdateState* state;        // updated
  const double* sums;        // [norm_blocks]
  const StepParams* params;  // divisor
  int norm_blocks;
  LossScaling scaling;
  void describe(Arguments&) const;
};

// The whole update in one pass over the flat arenas, with every option as PyTorch defines it. Per
// element, with
//   g = grad / grad_divisor * min(1, clip / (grad_norm + 1e-6))   (clip 0: without min)
//   wd = weight_decay where decay[element / decay_chunk], else 0
//   lr = params->lr, times lr_scale[element / decay_chunk] if that is given
//   sgd:    g += wd w;  m = t == 1 ? g : momentum m + g;  w -= lr (nesterov ? g + momentum m : m)
//           (momentum 0: w -= lr g)
//   adam:   g += wd w;  m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2;
//           w -= lr / (1 - beta1^t) m / (sqrt(v) / sqrt(1 - beta2^t) + eps)
//   adamw:  w -= lr wd w, then as adam without its wd
// and then an exponential moving average of the weights, whose decay is at most 1 - ema_rate, and
// t / (t + 9) at first:
//   ema += max(ema_rate, 9 / (t + 9)) (w - ema)
// t = state->count. If state->found_inf, weights, moments and average stay as they are.
struct OptimizerUpdate {
  static constexpr size_t decay_chunk = 64;  // parameters start at multiples of it

  float* weight;          // [count]  master weights, updated
  void* compute_weights;  // [count] dtype: the weights that kernels read  =; null in fp32
  float* m;    // [count]  momentum or first moment, updated; null for sgd without momentum
  float* v;    // [count]  second moment, updated; null for sgd
  float* ema;  // [count]  moving average of weight, updated; or null
  const UpdateState* state;  // from GradientNorm
  const float* grad;         // [count]
  const uint8_t* decay;      // [ceil(count / decay_chunk)]
  const float* lr_scale;     // [ceil(count / decay_chunk)], or null: 1
  const StepParams* params;  // lr
  size_t count;
  float momentum;
  double beta1, beta2;            // double: Adam uses 1 - beta, inexact from a float beta
  float eps, weight_decay, clip;  // clip 0: none
  float ema_rate;                 // 1 - decay, computed in double by the host
  OptimizerKind kind;
  bool nesterov;
  DType dtype;  // of compute_weights
  void describe(Arguments&) const;
};

// Rounds each element once: weights that temporarily replace the compute weights (their moving
// average, in evaluation), or gradients for a message.
struct RoundWeights {
  static constexpr bool converts = true;  // to every dtype, on every device

  void* out;         // [count] dtype  =
  const float* inp;  // [count]
  size_t count;
  DType dtype;
  void describe(Arguments&) const;
};

// The sum of equal parts (gradients of a batch's shards, messages of several processes) in an order
// that is the same on every device:
//   out = factor * (tree(first 64 parts) + tree(next 64) + ...)
//   tree(parts) = the part itself if there is only one; else tree(first n) + tree(the rest), n the
//   largest power of two below the number of parts: neighbours are added, then neighbouring sums
// All sums are in fp32.
struct SumParts {
  static constexpr int together = 64;
  static constexpr bool converts = true;  // from every dtype, on every device

  float* out;       // [count]  =; may be the first part's memory
  const void* inp;  // [parts, stride] dtype; the first `count` of each row
  size_t count, stride;
  float factor;
  int parts;
  DType dtype;  // of inp
  void describe(Arguments&) const;
};

}  // namespace bv

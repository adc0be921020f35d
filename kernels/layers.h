// Operations of layers, forward and backward. kernels/kernels.h says how to read them.
#pragma once
#include <cstddef>
#include <cstdint>

#include "kernels/arguments.h"
#include "kernels/types.h"

namespace bv {

// ---- linear -------------------------------------------------------------------------------------
struct LinearShape {
  int M, N, K;  // rows, features out, features in
};

// out = inp weight^T + bias
struct LinearForward {
  void* out;           // [M, N] dtype  =
  void* workspace;     // [workspace_bytes(*this)]
  const void* inp;     // [M, K] dtype
  const void* weight;  // [N, K] dtype
  const void* bias;    // [N] dtype, or null
  LinearShape shape;
  DType dtype;
  void describe(Arguments&) const;
};

// dinp = dout weight
struct LinearBackwardInput {
  void* dinp;          // [M, K] dtype  =
  void* workspace;     // [workspace_bytes(*this)]
  const void* dout;    // [M, N] dtype
  const void* weight;  // [N, K] dtype
  LinearShape shape;
  DType dtype;
  void describe(Arguments&) const;
};

// dweight (+)= dout^T inp,   dbias (+)= sum over rows of dout
struct LinearBackwardWeight {
  float* dweight;    // [N, K]  = or +=, per accumulate
  float* dbias;      // [N]     = or +=, per accumulate; or null
  void* workspace;   // [workspace_bytes(*this)]
  const void* dout;  // [M, N] dtype
  const void* inp;   // [M, K] dtype
  LinearShape shape;
  DType dtype;
  bool accumulate;
  void describe(Arguments&) const;
};

// Computes both gradients of a layer from the same dout, the weight gradient first. If a device's
// weight gradient kernel leaves partial sums, its input gradient kernel may add them up.
template <class WeightGradient, class InputGradient>
struct BothGradients {
  WeightGradient weight;
  InputGradient input;  // the `workspace` fields of weight and input are not read
  void* workspace;      // [workspace_bytes(*this)]
  void describe(Arguments&) const;
};
using LinearBackward = BothGradients<LinearBackwardWeight, LinearBackwardInput>;

// For operations on rows of C channels. A row is one position of one image, or one token.
struct RowsShape {
  int rows, C;
};

// Dropout, or drop path, in an operation on rows. Row image_rows b + t is row t of image b; its
// element c is kept if Dropout keeps element t C + c of that image, and then divided by 1 - drop.
// Drop path (Huang et al. 2016) keeps or drops a whole image, as Dropout decides for element 0 of
// the image. Values may be rounded to dtype before and after dropout.
struct Drop {
  int image_rows = 1;
  uint32_t layer = 0;
  float drop = 0;
};

// ---- activations --------------------------------------------------------------------------------
// The exact GELU (Hendrycks & Gimpel 2016) of x = inp + bias:
//   out = dropout(x Phi(x)),   x Phi(x) = x/2 (1 + erf(x / sqrt 2))
struct BiasGeluForward {
  void* out;                 // [rows, C] dtype  =, may be inp itself
  const void* inp;           // [rows, C] dtype, saved for backward
  const void* bias;          // [C] dtype
  const StepParams* params;  // seed, epoch, position; unused without dropout
  RowsShape shape;
  Drop dropout;
  DType dtype;
  void describe(Arguments&) const;
};

// dinp = dropout(dout) (Phi(x) + x phi(x)),   dbias (+)= sum over rows of dinp
struct BiasGeluBackward {
  void* dinp;                // [rows, C] dtype  =, may be dout itself
  float* dbias;              // [C]  = or +=, per accumulate
  void* workspace;           // [workspace_bytes(*this)]
  const void* dout;          // [rows, C] dtype
  const void* inp;           // [rows, C] dtype
  const void* bias;          // [C] dtype
  const StepParams* params;  // as in BiasGeluForward
  RowsShape shape;
  Drop dropout;
  DType dtype;
  bool accumulate;
  void describe(Arguments&) const;
};

// out = tanh(inp)
struct TanhForward {
  void* out;        // [rows, C] dtype  =, may be inp itself; saved for backward
  const void* inp;  // [rows, C] dtype
  RowsShape shape;
  DType dtype;
  void describe(Arguments&) const;
};

// dinp = dout (1 - out^2)
struct TanhBackward {
  void* dinp;        // [rows, C] dtype  =, may be dout itself
  const void* dout;  // [rows, C] dtype
  const void* out;   // [rows, C] dtype
  RowsShape shape;
  DType dtype;
  void describe(Arguments&) const;
};

// ---- linear and GELU ----------------------------------------------------------------------------
// A linear layer and the GELU of its result, so that a matrix product can apply GELU to its sums:
//   h = inp weight^T,   out = dropout(gelu(h + bias))
// out is rounded once, from fp32. It may be computed from the stored h or from the unrounded sum.
struct LinearGeluForward {
  void* out;                 // [M, N] dtype  =
  void* h;                   // [M, N] dtype  =, saved for backward; null: not stored
  void* workspace;           // [workspace_bytes(*this)]
  const void* inp;           // [M, K] dtype
  const void* weight;        // [N, K] dtype
  const void* bias;          // [N] dtype
  const StepParams* params;  // as in BiasGeluForward
  LinearShape shape;
  Drop dropout;
  DType dtype;
  void describe(Arguments&) const;
  // The same as two operations; without h, the second works in place.
  LinearForward product() const;
  BiasGeluForward gelu() const;
};

// The input gradient of a linear layer that reads dropout(gelu(x)), x = h + gelu_bias, combined
// with the gradient of the GELU:
//   dinp = dropout(dout weight) (Phi(x) + x phi(x)),   dgelu_bias (+)= sum over rows of dinp
// dinp is rounded once, from fp32; the product dout weight may be rounded as well. The sum over
// rows is of dinp before rounding.
struct GeluLinearBackwardInput {
  void* dinp;                // [M, K] dtype  =
  float* dgelu_bias;         // [K]  = or +=, per accumulate
  void* workspace;           // [workspace_bytes(*this)]
  const void* dout;          // [M, N] dtype
  const void* h;             // [M, K] dtype: LinearGeluForward's
  const void* weight;        // [N, K] dtype
  const void* gelu_bias;     // [K] dtype
  const StepParams* params;  // as in BiasGeluForward
  LinearShape shape;
  Drop dropout;
  DType dtype;
  bool accumulate;
  void describe(Arguments&) const;
  // The same as two operations, the second in place.
  LinearBackwardInput product() const;
  BiasGeluBackward gelu() const;
};
using GeluLinearBackward = BothGradients<LinearBackwardWeight, GeluLinearBackwardInput>;

// ---- layernorm ----------------------------------------------------------------------------------
// Residual add and layer normalisation over the last dimension (Ba et al. 2016), row by row:
//   sum = inp + drop_path(dropout(residual))
//   out = (sum - mean) * rstd * weight + bias,   rstd = 1 / sqrt(biased variance + eps)
// Without a residual, sum is inp, and `sum` isn't written. mean and variance are computed from sum
// as stored (rounded to dtype), since backward reads the stored sum.
struct LayerNormForward {
  void* out;                   // [rows, C] dtype  =, may be residual itself
  void* sum;                   // [rows, C] dtype  =, saved for backward; null without residual
  float *mean, *rstd;          // [rows]  =, saved for backward
  const void* inp;             // [rows, C] dtype
  const void* residual;        // [rows, C] dtype, or null
  const float *weight, *bias;  // [C]
  const StepParams* params;    // seed, epoch, position; unused without dropout and drop path
  RowsShape shape;
  Drop dropout, drop_path;
  float eps;
  DType dtype;
  void describe(Arguments&) const;
};

// dinp = dsum + rstd * (g - mean_C(g) - xhat * mean_C(g * xhat))
//   g = dout * weight,   xhat = (sum - mean) * rstd
// dresidual = drop_path(dropout(dinp))
// dweight (+)= sum over rows of dout * xhat,   dbias (+)= sum over rows of dout
struct LayerNormBackward {
  void* dinp;                // [rows, C] dtype  =, may be dout or dsum itself
  void* dresidual;           // [rows, C] dtype  =; null if nothing is dropped: it equals dinp
  float *dweight, *dbias;    // [C]  = or +=, per accumulate
  void* workspace;           // [workspace_bytes(*this)]
  const void* dout;          // [rows, C] dtype
  const void* dsum;          // [rows, C] dtype: gradient of sum from its other uses, or null
  const void* sum;           // [rows, C] dtype
  const float *mean, *rstd;  // [rows]
  const float* weight;       // [C]
  const StepParams* params;  // as in LayerNormForward
  RowsShape shape;
  Drop dropout, drop_path;
  DType dtype;
  bool accumulate;
  void describe(Arguments&) const;
};

// ---- linear and layernorm -----------------------------------------------------------------------
// A linear layer and the layer norm that adds the layer's result to the residual stream, so that a
// matrix product can normalise the rows of its sums:
//   LinearForward, whose out is LayerNormForward's residual; LayerNormForward's inp is `stream`
// The residual may be rounded to dtype before it is added.
struct LinearNormForward {
  void* out;                             // [M, N] dtype  =: the layer norm's
  void* sum;                             // [M, N] dtype  =, saved for backward
  float *mean, *rstd;                    // [M]  =, saved for backward
  void* workspace;                       // [workspace_bytes(*this)]
  const void* inp;                       // [M, K] dtype
  const void* stream;                    // [M, N] dtype
  const void* weight;                    // [N, K] dtype
  const void* bias;                      // [N] dtype, or null
  const float *norm_weight, *norm_bias;  // [N]
  const StepParams* params;              // as in LayerNormForward
  LinearShape shape;
  Drop dropout, drop_path;
  float eps;
  DType dtype;
  void describe(Arguments&) const;
  // The same as two operations, the second in place.
  LinearForward product() const;
  LayerNormForward norm() const;
};

// The input gradient of a linear layer that reads a layer norm's out, combined with the layer
// norm's gradients:
//   LinearBackwardInput, whose dinp, possibly rounded to dtype, is LayerNormBackward's dout
struct NormLinearBackwardInput {
  void* dinp;                        // [M, K] dtype  =: the layer norm's
  void* dresidual;                   // [M, K] dtype  =, as in LayerNormBackward
  float *dnorm_weight, *dnorm_bias;  // [K]  = or +=, per accumulate
  void* workspace;                   // [workspace_bytes(*this)]
  const void* dout;                  // [M, N] dtype: the linear's
  const void* dsum;                  // [M, K] dtype, as in LayerNormBackward, or null
  const void* sum;                   // [M, K] dtype
  const float *mean, *rstd;          // [M]
  const void* weight;                // [N, K] dtype
  const float* norm_weight;          // [K]
  const StepParams* params;          // as in LayerNormForward
  LinearShape shape;
  Drop dropout, drop_path;
  DType dtype;
  bool accumulate;
  void describe(Arguments&) const;
  // The same as two operations, the second in place.
  LinearBackwardInput product() const;
  LayerNormBackward norm() const;
};
using NormLinearBackward = BothGradients<LinearBackwardWeight, NormLinearBackwardInput>;

// ---- attention ----------------------------------------------------------------------------------
// Multi-head self-attention over packed projections, flash-style (Dao et al. 2022): for each image
// and head
//   S = Q K^T / sqrt(D),   P = softmax(S) over keys,   out = (P * mask / (1 - drop)) V
//   lse[b, h, q] = log sum over keys of exp(S)
// The matrix of scores never reaches memory. Dropout (drop > 0) keeps element i = (h * N + q) * N +
// key of P if word i % 4 of philox(seed, i / 4, position + b, epoch, layer), as a uniform number in
// [0, 1), is at least drop.
// D: 32, 64 or 128 on a GPU; a multiple of 8 up to 128 on the CPU. Only the first Q tokens of each
// image are queries; all N are keys.
struct AttentionShape {
  int B, N, H, D;  // images, tokens, heads, channels per head
  int Q = N;       // queries
};

struct AttentionForward {
  void* out;                 // [B, Q, H, D] dtype  =, saved for backward
  float* lse;                // [B, H, Q]  =, saved for backward
  void* workspace;           // [workspace_bytes(*this)]
  const void* qkv;           // [B, N, 3, H, D] dtype
  const StepParams* params;  // seed, epoch, position; unused without dropout
  AttentionShape shape;
  uint32_t layer;
  float drop;
  DType dtype;
  void describe(Arguments&) const;
};

// With dP' = dout V^T * mask / (1 - drop) and delta = rowsum(dout * out):
//   dV = (P * mask / (1 - drop))^T dout,   dS = P * (dP' - delta)
//   dQ = dS K / sqrt(D), 0 for tokens that are not queries,   dK = dS^T Q / sqrt(D)
struct AttentionBackward {
  void* dqkv;                // [B, N, 3, H, D] dtype  =
  void* workspace;           // [workspace_bytes(*this)]
  const void* dout;          // [B, Q, H, D] dtype
  const void* qkv;           // [B, N, 3, H, D] dtype
  const void* out;           // [B, Q, H, D] dtype
  const float* lse;          // [B, H, Q]
  const StepParams* params;  // as in forward
  AttentionShape shape;
  uint32_t layer;
  float drop;
  DType dtype;
  void describe(Arguments&) const;
};

// ---- tokens -------------------------------------------------------------------------------------
// Puts the class token and, if prefix is 2, the distillation token (Touvron et al. 2021) before the
// patches, and adds the position embedding to all tokens:
//   out[b, 0] = class_token + position[0],   out[b, 1] = dist_token + position[1]  (prefix is 2),
//   out[b, prefix + p] = patches[b, p] + position[prefix + p]
struct EmbedShape {
  int B, P, C;     // images, patches, channels
  int prefix = 1;  // tokens before the patches
};

struct EmbedForward {
  void* out;                 // [B, prefix + P, C] dtype  =
  const void* patches;       // [B, P, C] dtype
  const float* class_token;  // [C]
  const float* dist_token;   // [C]; null if prefix is 1
  const float* position;     // [prefix + P, C]
  EmbedShape shape;
  DType dtype;
  void describe(Arguments&) const;
};

// dpatches[b, p] = dout[b, prefix + p]
// dclass_token (+)= sum_b dout[b, 0],   ddist_token (+)= sum_b dout[b, 1],
// dposition (+)= sum_b dout[b]
struct EmbedBackward {
  void* dpatches;       // [B, P, C] dtype  =
  float* dclass_token;  // [C]  = or +=, per accumulate
  float* ddist_token;   // [C]  = or +=, per accumulate; null if prefix is 1
  float* dposition;     // [prefix + P, C]  = or +=, per accumulate
  const void* dout;     // [B, prefix + P, C] dtype
  EmbedShape shape;
  DType dtype;
  bool accumulate;
  void describe(Arguments&) const;
};

// Tokens first, first + 1 .. first + count - 1 of each image.
struct TokensShape {
  int B, N, C;
  int first = 0, count = 1;
};

// out[b, t] = inp[b, first + t]
struct TakeTokensForward {
  void* out;        // [B, count, C] dtype  =
  const void* inp;  // [B, N, C] dtype
  TokensShape shape;
  DType dtype;
  void describe(Arguments&) const;
};

// dinp[b, first + t] = dout[b, t]. Later tokens are set to 0, tokens before `first` are not
// written.
struct TakeTokensBackward {
  void* dinp;        // [B, N, C] dtype  =, from token `first` on
  const void* dout;  // [B, count, C] dtype
  TokensShape shape;
  DType dtype;
  void describe(Arguments&) const;
};

// ---- convolution --------------------------------------------------------------------------------
// Cross-correlation (what deep learning calls convolution) with zero padding:
//   out[n, p, q, k] = sum over r, s, c of
//       inp[n, p stride - padding + r, q stride - padding + s, first(k) + c] weight[k, r, s, c]
// c runs over the C / groups channels of k's group, which begin at first(k) =
// k / (K / groups) * (C / groups).
struct ConvForward {
  void* out;           // [N, P, Q, K] dtype  =
  float* batch_stats;  // [2, K]  =: mean and biased variance of each channel of the stored
                       // out; null: not computed
  void* workspace;     // [workspace_bytes(*this)]
  const void* inp;     // [N, H, W, C] dtype
  const void* weight;  // [K, R, S, C / groups] dtype
  ConvShape shape;
  DType dtype;
  void describe(Arguments&) const;
};

// dinp[n, h, w, first(k) + c] = add + sum over the group's k and all p, r, q, s with
//   p stride - padding + r = h,  q stride - padding + s = w
// of dout[n, p, q, k] weight[k, r, s, c]
struct ConvBackwardInput {
  void* dinp;        // [N, H, W, C] dtype  =
  void* workspace;   // [workspace_bytes(*this)]
  const void* dout;  // [N, P, Q, K] dtype
  const void* add;   // [N, H, W, C] dtype, inp's gradient from another branch; or null; may be dinp
  const void* weight;  // [K, R, S, C / groups] dtype
  ConvShape shape;
  DType dtype;
  void describe(Arguments&) const;
};

// dweight[k, r, s, c] (+)= sum over n, p, q of
//   dout[n, p, q, k] inp[n, p stride - padding + r, q stride - padding + s, first(k) + c]
struct ConvBackwardWeight {
  float* dweight;    // [K, R, S, C / groups]  = or +=, per accumulate
  void* workspace;   // [workspace_bytes(*this)]
  const void* dout;  // [N, P, Q, K] dtype
  const void* inp;   // [N, H, W, C] dtype
  ConvShape shape;
  DType dtype;
  bool accumulate;
  void describe(Arguments&) const;
};

using ConvBackward = BothGradients<ConvBackwardWeight, ConvBackwardInput>;

// ---- batch norm ---------------------------------------------------------------------------------
// Batch normalisation (Ioffe & Szegedy 2015) over the rows of [rows, C], that is over images and
// positions, fused with what follows it in a residual network:
//   y = (inp - mean) * rstd * weight + bias (+ residual),   out = relu ? max(y, 0) : y
//   rstd = 1 / sqrt(variance + eps)
// If the residual is a projection's output, residual_norm is its batch norm, applied as the
// residual is added, so that its result needs no memory and no pass of its own.
// mean and variance are over `parts` equal parts (the processes' batches with SyncBN; else one)
// whose moments are given: mean = mean of the parts' means, variance = mean of the parts' variances
// + variance of the parts' means. NaN propagates; running statistics keep their value if mean or
// variance is not finite.
// Every device computes y as fma(inp - mean, rstd * weight, bias) (+ residual), so that backward
// recomputes the same sign. With a residual, backward can't recompute y, so the ReLU mask is saved:
// bit c % 64 of relu_mask[c / 64, row] is out[row, c] > 0, and bits past C are undefined.
struct BatchNormForward {
  void* out;             // [rows, C] dtype  =
  uint64_t* relu_mask;   // [ceil(C / 64), rows]  =, saved for backward; null: not written
  const void* inp;       // [rows, C] dtype
  const void* residual;  // [rows, C] dtype, or null
  struct Norm {
    float *mean, *rstd;          // [C]  =, saved for backward
    float* running_mean;         // [C]  = (1 - momentum) running + momentum mean; null: not updated
    float* running_var;          // [C]  likewise, with variance n / max(n - 1, 1), n = rows * parts
    const float* moments;        // [parts, 2, C]: mean and biased variance, from ConvForward
    const float *weight, *bias;  // [C]
  } norm, residual_norm;         // the second: all null if the residual is added as it is
  RowsShape shape;
  int parts;
  float eps, momentum;
  bool relu;
  DType dtype;
  void describe(Arguments&) const;
};

// Evaluation: the same with the running statistics as mean and variance.
struct BatchNormEvaluate {
  void* out;             // [rows, C] dtype  =, may be inp or residual itself
  const void* inp;       // [rows, C] dtype
  const void* residual;  // [rows, C] dtype, or null
  const float *running_mean, *running_var, *weight, *bias;  // [C]
  RowsShape shape;
  float eps;
  bool relu;
  DType dtype;
  void describe(Arguments&) const;
};

// Backward has two passes, since SyncBN reduces `sums` over the processes between them. The first
// pass, with g = dout if y > 0 or relu is false, else 0, and xhat = (inp - mean) * rstd:
//   sums[0] = sum over rows of g,   sums[1] = sum over rows of g * xhat,
//   dbias (+)= sums[0],   dweight (+)= sums[1]
// With a residual, g is the residual's gradient and `relu_mask` marks where y > 0; without one, y
// is recomputed from inp.
struct BatchNormBackwardSums {
  float* sums;                // [2, C]  =
  float *dweight, *dbias;     // [C]  = or +=, per accumulate
  void* g;                    // [rows, C] dtype  =, may be dout itself; null: not written
  void* workspace;            // [workspace_bytes(*this)]
  const void* dout;           // [rows, C] dtype
  const uint64_t* relu_mask;  // [ceil(C / 64), rows]: forward's, if it had a residual and relu
  const void* inp;            // [rows, C] dtype
  const float *mean, *rstd, *weight, *bias;  // [C]
  RowsShape shape;
  bool relu;
  DType dtype;
  bool accumulate;
  void describe(Arguments&) const;
};

// ConvBackwardInput and then BatchNormBackwardSums, for a convolution whose inp is a batch norm's
// out: dinp is the batch norm's dout or, with norm_relu_mask, its g. The batch norm's arguments
// except sums, mean and rstd are called norm_NAME; C is the convolution's, rows are N * H * W.
struct ConvBackwardInputSums {
  void* dinp;                            // [N, H, W, C] dtype  =
  float* sums;                           // [2, C]  =
  float *dnorm_weight, *dnorm_bias;      // [C]  = or +=, per accumulate
  void* workspace;                       // [workspace_bytes(*this)]
  const void* dout;                      // [N, P, Q, K] dtype
  const void* add;                       // [N, H, W, C] dtype, as in ConvBackwardInput
  const uint64_t* norm_relu_mask;        // [ceil(C / 64), N * H * W], as in BatchNormBackwardSums
  const void* norm_inp;                  // [N, H, W, C] dtype
  const float *mean, *rstd;              // [C]
  const float *norm_weight, *norm_bias;  // [C]
  const void* weight;                    // [K, R, S, C / groups] dtype
  ConvShape shape;
  bool relu;
  DType dtype;
  bool accumulate;

  // The two operations, both with this workspace.
  ConvBackwardInput input_gradient() const;
  BatchNormBackwardSums norm_sums() const;
  void describe(Arguments&) const;
};
using ConvBackwardSums = BothGradients<ConvBackwardWeight, ConvBackwardInputSums>;

// The second pass: dinp = weight * rstd * (g - sums[0] / n - xhat * sums[1] / n),  n = rows * parts
// With residual_norm, it also computes the dinp of that batch norm from the same g; the sums of
// residual_norm come from a separate first pass over g. relu is then false.
struct BatchNormBackward {
  const void* dout;  // [rows, C] dtype; g, with relu false, if BatchNormBackwardSums wrote it
  struct Norm {
    void* dinp;                         // [rows, C] dtype  =, may be dout itself
    const float* sums;                  // [2, C], over all parts
    const void* inp;                    // [rows, C] dtype
    const float *mean, *rstd, *weight;  // [C]
  } norm, residual_norm;                // the second: as in BatchNormForward, or all null
  const float* bias;                    // [C], of `norm`
  RowsShape shape;
  int parts;
  bool relu;  // the sign of y is recomputed from inp
  DType dtype;
  void describe(Arguments&) const;
};

// ---- pooling ------------------------------------------------------------------------------------
// The maximum of each R x R window. Padding never wins. Ties: first in row-major order. NaN beats
// every number, as in PyTorch. `index` is the maximum's position in its window: r * R + s.
struct MaxPoolForward {
  void* out;        // [N, P, Q, C] dtype  =
  uint8_t* index;   // [N, P, Q, C]  =, saved for backward
  const void* inp;  // [N, H, W, C] dtype
  PoolShape shape;
  DType dtype;
  void describe(Arguments&) const;
};

// dinp = sum of dout over the windows whose maximum is this element, in the windows' order
struct MaxPoolBackward {
  void* dinp;            // [N, H, W, C] dtype  =
  const void* dout;      // [N, P, Q, C] dtype
  const uint8_t* index;  // [N, P, Q, C]
  PoolShape shape;
  DType dtype;
  void describe(Arguments&) const;
};

struct PositionsShape {
  int N, positions, C;
};

// out[n, c] = mean over positions of inp[n, position, c]
struct AveragePoolForward {
  void* out;        // [N, C] dtype  =
  const void* inp;  // [N, positions, C] dtype
  PositionsShape shape;
  DType dtype;
  void describe(Arguments&) const;
};

// dinp[n, position, c] = dout[n, c] / positions
struct AveragePoolBackward {
  void* dinp;        // [N, positions, C] dtype  =
  const void* dout;  // [N, C] dtype
  PositionsShape shape;
  DType dtype;
  void describe(Arguments&) const;
};

// ---- dropout ------------------------------------------------------------------------------------
struct DropoutShape {
  int B, elements;
};

// Forward, and backward when applied to gradients: out = keep ? inp / (1 - drop) : 0 (Srivastava et
// al. 2014). Element i of image b is kept if word i % 4 of philox(seed, i / 4, position + b, epoch,
// layer), as a uniform number in [0, 1), is at least drop.
struct Dropout {
  void* out;                 // [B, elements] dtype  =, may be inp itself
  const void* inp;           // [B, elements] dtype
  const StepParams* params;  // seed, epoch, position
  DropoutShape shape;
  uint32_t layer;
  float drop;
  DType dtype;
  void describe(Arguments&) const;
};

}  // namespace bv

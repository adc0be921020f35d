// The table of operations: what each one computes, on which shapes, and what it writes (= or +=).
// NAME.cpp computes it on the CPU, NAME.cu on a GPU, in kernels/layers/, training/, activation/,
// attention/, augment/ or conv/; NAME.cu starts with easily read plain kernels (--kernels plain).
// The engine accesses devices only through this table and kernels/backend.h. Terms: GLOSSARY.md.
//
// Arguments are in the order outputs, inputs, weights, shape, dtype, accumulate. Gradients are
// prefixed with d. "dtype" after a shape means elements of the operation's dtype; float tensors are
// always fp32. All tensors are dense, row-major and aligned to 64 bytes, workspaces to 256.
// Outputs never overlap inputs unless stated. Each describe(), in kernels/table/operations.cpp,
// states what is checked before a run and what the operation costs.
#pragma once
#include <cstddef>
#include <cstdint>

#include "kernels/arguments.h"
#include "kernels/kernel_table.h"
#include "kernels/types.h"

namespace bv {

// ---- input --------------------------------------------------------------------------------------
// Converts pixels to normalised patches, the input of a ViT's first matrix product:
//   out[b, gy * (size/patch) + gx, (c * patch + py) * patch + px]
//     = (pixel(b, gy * patch + py, gx * patch + px, c) / 255 - mean[c]) / std[c]
// with pixels selected by Crop. Pixels outside the stored image are 0 before normalisation, like
// the padding of torchvision's RandomCrop. In mixed images (Mix, kernels/types.h) a pixel is
//   pixel(b ^ 1) in the box;  without a box  lambda pixel(b) + (1 - lambda) pixel(b ^ 1), rounded
struct InputShape {
  int B, height, width;   // of the stored images
  int size, patch;        // of the result
  float mean[3], std[3];  // of pixels in 0-1
};

struct InputPatches {
  void* out;              // [B, (size/patch)^2, 3*patch*patch] dtype  =
  const uint8_t* images;  // [B, height, width, 3]
  const Crop* crops;      // [B]; null: images of height and width `size` as they are
  const Mix* mixes;       // [B], B even; null: nothing is mixed
  InputShape shape;
  DType dtype;
  void describe(Arguments&) const;
};

// Applies one ImageOp (kernels/types.h) to each image, in integer arithmetic except for hue.
struct AugmentShape {
  int B, height, width;  // of the stored images
  int size;              // of the result
  int layer, layers;     // which of the image's operations runs; how many it has
};

struct AugmentImages {
  uint8_t* out;           // [B, size, size, 3]  =
  const uint8_t* images;  // [B, height, width, 3]
  const Crop* crops;      // [B], applied first; null: as in InputPatches
  const ImageOp* ops;     // [B, layers]
  AugmentShape shape;
  void describe(Arguments&) const;
};

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

// ---- the table ----------------------------------------------------------------------------------
using Kernels = KernelTable<
    InputPatches, AugmentImages, LinearForward, LinearBackwardInput, LinearBackwardWeight,
    LinearBackward, BiasGeluForward, BiasGeluBackward, TanhForward, TanhBackward, LinearGeluForward,
    GeluLinearBackwardInput, GeluLinearBackward, LayerNormForward, LayerNormBackward,
    LinearNormForward, NormLinearBackwardInput, NormLinearBackward, AttentionForward,
    AttentionBackward, EmbedForward, EmbedBackward, TakeTokensForward, TakeTokensBackward,
    ConvForward, ConvBackwardInput, ConvBackwardWeight, ConvBackward, BatchNormForward,
    BatchNormEvaluate, BatchNormBackwardSums, ConvBackwardInputSums, ConvBackwardSums,
    BatchNormBackward, MaxPoolForward, MaxPoolBackward, AveragePoolForward, AveragePoolBackward,
    Dropout, CrossEntropyForward, CrossEntropyBackward, MeanLogits, Metrics, GradientTail,
    GradientNorm, OptimizerUpdate, RoundWeights, SumParts, GradientSquares>;
// The base of a device's table: class D final : public KernelRows<D>.
template <class Self>
using KernelRows = Kernels::Apply<RowsOf, Self>;

}  // namespace bv

// Every operation of kernels/kernels.h once more, as plainly as it can be said: slow loops in
// double precision, from which all devices are judged. Inputs are exact numbers; results carry the
// error that fp32 may make (tracked.h). The backward passes are checked against finite differences
// in oracle_test.cpp. Where an operation accumulates, the oracle gives what is added.
#pragma once
#include <cstdint>
#include <vector>

#include "kernels/kernels.h"
#include "tests/numerics/tracked.h"

namespace bv::test::oracle {

using Values = std::vector<double>;
using Tensor = std::vector<Tracked>;

// ---- input ----
Tensor input_patches(const std::vector<uint8_t>& images, const std::vector<Crop>& crops,
                     const InputPatches& sizes);

// ---- linear; an empty bias is none ----
Tensor linear_forward(const Values& inp, const Values& weight, const Values& bias, int M, int N,
                      int K);
Tensor linear_backward_input(const Values& dout, const Values& weight, int M, int N, int K);
struct LinearGradient {
  Tensor dweight, dbias;
};
LinearGradient linear_backward_weight(const Values& dout, const Values& inp, int M, int N, int K);

// ---- gelu ----
Tensor bias_gelu_forward(const Values& inp, const Values& bias, int rows, int C);
struct GeluGradient {
  Tensor dinp, dbias;
};
GeluGradient bias_gelu_backward(const Values& dout, const Values& inp, const Values& bias, int rows,
                                int C);

// ---- layernorm; an empty residual or dsum is none ----
// Mean and rstd are those of sum as dtype holds it.
struct LayerNormResult {
  Tensor out, sum, mean, rstd;
};
LayerNormResult layernorm_forward(const Values& inp, const Values& residual, const Values& weight,
                                  const Values& bias, int rows, int C, double eps,
                                  DType dtype = DType::fp32);
struct LayerNormGradient {
  Tensor dinp, dweight, dbias;
};
LayerNormGradient layernorm_backward(const Values& dout, const Values& dsum, const Values& sum,
                                     const Values& mean, const Values& rstd, const Values& weight,
                                     int rows, int C);

// ---- attention ----
struct AttentionSizes {
  int B, N, H, D;
  uint32_t layer = 0;
  float drop = 0;
  StepParams params = {};     // seed, epoch, position
  DType dtype = DType::fp32;  // of P and dS as factors of a matrix product
};
struct AttentionResult {
  Tensor out, lse;
};
AttentionResult attention_forward(const Values& qkv, const AttentionSizes&);
Tensor attention_backward(const Values& dout, const Values& qkv, const Values& out,
                          const Values& lse, const AttentionSizes&);

// ---- tokens ----
Tensor embed_forward(const Values& patches, const Values& class_token, const Values& position,
                     int B, int P, int C);
struct EmbedGradient {
  Tensor dpatches, dclass_token, dposition;
};
EmbedGradient embed_backward(const Values& dout, int B, int P, int C);
Tensor class_token_forward(const Values& inp, int B, int N, int C);
Tensor class_token_backward(const Values& dout, int B, int N, int C);

// ---- convolution; an empty add is none ----
Tensor conv_forward(const Values& inp, const Values& weight, const ConvShape&);
Tensor conv_backward_input(const Values& dout, const Values& weight, const Values& add,
                           const ConvShape&);
Tensor conv_backward_weight(const Values& dout, const Values& inp, const ConvShape&);

// ---- batch norm; the last argument for its sizes, an empty residual, running or out is none ----
// Mean and biased variance of each column of [rows, C], as [2, C].
Tensor column_moments(const Values& inp, int rows, int C);
// Mean and variance of parts of the same size together, as [2, C], from theirs, [parts, 2, C].
Tensor merged_moments(const Values& moments, int parts, int C);
struct BatchNormResult {
  Tensor out, mean, rstd, running_mean, running_var;
};
BatchNormResult batchnorm_forward(const Values& inp, const Values& residual, const Values& moments,
                                  const Values& weight, const Values& bias,
                                  const Values& running_mean, const Values& running_var,
                                  const BatchNormForward& sizes);
Tensor batchnorm_evaluate(const Values& inp, const Values& residual, const Values& running_mean,
                          const Values& running_var, const Values& weight, const Values& bias,
                          const BatchNormEvaluate& sizes);
// What the backward passes have of the forward one.
struct BatchNormSaved {
  Values inp, mean, rstd, weight, bias;
};
struct BatchNormSums {
  Tensor dbias, dweight, g;
};
BatchNormSums batchnorm_backward_sums(const Values& dout, const Values& out, const BatchNormSaved&,
                                      const BatchNormBackwardSums& sizes);
Tensor batchnorm_backward(const Values& sums, const Values& dout, const BatchNormSaved&,
                          const BatchNormBackward& sizes);

// ---- pooling; the last argument for its sizes ----
struct MaxPoolResult {
  Tensor out;
  std::vector<uint8_t> index;
};
MaxPoolResult max_pool_forward(const Values& inp, const MaxPoolForward& sizes);
Tensor max_pool_backward(const Values& dout, const std::vector<uint8_t>& index,
                         const MaxPoolBackward& sizes);
Tensor average_pool_forward(const Values& inp, int N, int positions, int C);
Tensor average_pool_backward(const Values& dout, int N, int positions, int C);

// ---- dropout ----
bool kept(uint32_t decision, int image, uint32_t layer, float drop, const StepParams&);
Tensor dropout(const Values& inp, const StepParams&, int B, int elements, int group, uint32_t layer,
               float drop);

// ---- loss; empty targets are none ----
struct LossSizes {
  int B, K;
  double smoothing = 0;
};
struct CrossEntropyResult {
  Tensor loss, lse;
};
CrossEntropyResult cross_entropy_forward(const Values& logits, const std::vector<int32_t>& labels,
                                         const Values& targets, const LossSizes&);
Tensor cross_entropy_backward(const Values& logits, const Values& lse,
                              const std::vector<int32_t>& labels, const Values& targets,
                              double grad_scale, double loss_scale, const LossSizes&);
Values metrics(const Values& loss, const Values& logits, const std::vector<int32_t>& labels, int B,
               int K);
Tensor gradient_tail(const Values& loss, const StepParams&);

// ---- optimizer ----
struct NormResult {
  bool found_inf;
  Tracked grad_norm;
};
NormResult gradient_norm(const Values& grad, double loss_scale, double divisor);
struct UpdateResult {
  Tensor weight, m, v;
};
// The state after an update, or after one that was skipped.
UpdateState next_state(UpdateState, const LossScaling&);
// `options` for its numbers and kind; empty m and v are none. The update that is not skipped.
UpdateResult optimizer_update(const Values& weight, const Values& m, const Values& v,
                              const Values& grad, const std::vector<uint8_t>& decay,
                              const StepParams&, const UpdateState&,
                              const OptimizerUpdate& options);
Tensor scale(const Values& data, double factor);

}  // namespace bv::test::oracle

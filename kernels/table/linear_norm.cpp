// A linear layer and a layer norm as two operations, for devices that don't fuse them.
#include "kernels/layers.h"

namespace bv {

LinearForward LinearNormForward::product() const {
  return {.out = out,
          .workspace = workspace,
          .inp = inp,
          .weight = weight,
          .bias = bias,
          .shape = shape,
          .dtype = dtype};
}

LayerNormForward LinearNormForward::norm() const {
  return {.out = out,
          .sum = sum,
          .mean = mean,
          .rstd = rstd,
          .inp = stream,
          .residual = out,
          .weight = norm_weight,
          .bias = norm_bias,
          .params = params,
          .shape = {.rows = shape.M, .C = shape.N},
          .dropout = dropout,
          .drop_path = drop_path,
          .eps = eps,
          .dtype = dtype};
}

LinearBackwardInput NormLinearBackwardInput::product() const {
  return {.dinp = dinp,
          .workspace = workspace,
          .dout = dout,
          .weight = weight,
          .shape = shape,
          .dtype = dtype};
}

LayerNormBackward NormLinearBackwardInput::norm() const {
  return {.dinp = dinp,
          .dresidual = dresidual,
          .dweight = dnorm_weight,
          .dbias = dnorm_bias,
          .workspace = workspace,
          .dout = dinp,
          .dsum = dsum,
          .sum = sum,
          .mean = mean,
          .rstd = rstd,
          .weight = norm_weight,
          .params = params,
          .shape = {.rows = shape.M, .C = shape.K},
          .dropout = dropout,
          .drop_path = drop_path,
          .dtype = dtype,
          .accumulate = accumulate};
}

}  // namespace bv

// A linear layer and a GELU as two operations, for devices that don't fuse them.
#include "kernels/layers.h"

namespace bv {

LinearForward LinearGeluForward::product() const {
  return {.out = h ? h : out,
          .workspace = workspace,
          .inp = inp,
          .weight = weight,
          .bias = nullptr,
          .shape = shape,
          .dtype = dtype};
}

BiasGeluForward LinearGeluForward::gelu() const {
  return {.out = out,
          .inp = h ? h : out,
          .bias = bias,
          .params = params,
          .shape = {.rows = shape.M, .C = shape.N},
          .dropout = dropout,
          .dtype = dtype};
}

LinearBackwardInput GeluLinearBackwardInput::product() const {
  return {.dinp = dinp,
          .workspace = workspace,
          .dout = dout,
          .weight = weight,
          .shape = shape,
          .dtype = dtype};
}

BiasGeluBackward GeluLinearBackwardInput::gelu() const {
  return {.dinp = dinp,
          .dbias = dgelu_bias,
          .workspace = workspace,
          .dout = dinp,
          .inp = h,
          .bias = gelu_bias,
          .params = params,
          .shape = {.rows = shape.M, .C = shape.K},
          .dropout = dropout,
          .dtype = dtype,
          .accumulate = accumulate};
}

}  // namespace bv

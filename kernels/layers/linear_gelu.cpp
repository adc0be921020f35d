// A linear layer and a GELU as two operations:
//   forward  h[M,N] = inp[M,K] weight[N,K]^T,   out[M,N] = dropout(gelu(h + bias))
//   input    dinp[M,K] = dropout(dout[M,N] weight[N,K]) * gelu'(h[M,K] + gelu_bias),   dinp =
//            dgelu_bias[K] (+)= column sums of dinp                      = or += per accumulate
// oneDNN's product is stored in h, or in dinp, and gelu.cpp reads it from there. The product's
// arithmetic is the limit: 2 M N K flops.
#include "kernels/cpu/cpu_kernels.h"

namespace bv::BAREVISION_ISA {

template <>
size_t CpuKernels::workspace(const LinearGeluForward& op) {
  return workspace(op.product());
}

template <>
void CpuKernels::run(const LinearGeluForward& op) {
  run(op.product());
  run(op.gelu());
}

template <>
size_t CpuKernels::workspace(const GeluLinearBackwardInput& op) {
  const size_t product = workspace(op.product()), gelu = workspace(op.gelu());
  return product > gelu ? product : gelu;
}

template <>
void CpuKernels::run(const GeluLinearBackwardInput& op) {
  run(op.product());
  run(op.gelu());
}

}  // namespace bv::BAREVISION_ISA

// A linear layer and a GELU, each with its own kernels, plain or fast:
//   forward  h[M,N] = inp[M,K] weight[N,K]^T,   out[M,N] = dropout(gelu(h + bias))
//   input    dinp[M,K] = dropout(dout[M,N] weight[N,K]) * gelu'(h[M,K] + gelu_bias),   dinp =
//            dgelu_bias[K] (+)= column sums of dinp                      = or += per accumulate
// The product is rounded to dtype and stored in h, or in dinp, from where gelu.cu reads it: in 16
// bits, this moves 2 bytes per element forward and 4 backward that a product with the GELU in its
// epilogue would keep in registers. Memory limits the second kernel, and so these operations.
#include <algorithm>

#include "kernels/cuda/cuda_kernels.h"

namespace bv::BAREVISION_GPU {

template <>
size_t CudaKernels::workspace(const LinearGeluForward& op) {
  return workspace(op.product());
}

template <>
void CudaKernels::run(const LinearGeluForward& op, cudaStream_t stream) {
  run(op.product(), stream);
  run(op.gelu(), stream);
}

template <>
size_t CudaKernels::workspace(const GeluLinearBackwardInput& op) {
  return std::max(workspace(op.product()), workspace(op.gelu()));
}

template <>
void CudaKernels::run(const GeluLinearBackwardInput& op, cudaStream_t stream) {
  run(op.product(), stream);
  run(op.gelu(), stream);
}

template <>
void PlainKernels::run(const LinearGeluForward& op, cudaStream_t stream) {
  run(op.product(), stream);
  run(op.gelu(), stream);
}

template <>
void PlainKernels::run(const GeluLinearBackwardInput& op, cudaStream_t stream) {
  run(op.product(), stream);
  run(op.gelu(), stream);
}

}  // namespace bv::BAREVISION_GPU

// A linear layer and a layer norm (kernels.h), each with its own kernels, plain or fast. The
// product is rounded to dtype and stored in out, or in dinp, from where layernorm.cu reads it: in
// 16 bits, that moves 4 bytes per element that a product with the norm in its epilogue would keep
// in registers. Memory limits the second kernel, and so these operations.
#include <algorithm>

#include "kernels/cuda/cuda_kernels.h"

namespace bv::BAREVISION_GPU {

template <>
size_t CudaKernels::workspace(const LinearNormForward& op) {
  return workspace(op.product());
}

template <>
void CudaKernels::run(const LinearNormForward& op, cudaStream_t stream) {
  run(op.product(), stream);
  run(op.norm(), stream);
}

template <>
size_t CudaKernels::workspace(const NormLinearBackwardInput& op) {
  return std::max(workspace(op.product()), workspace(op.norm()));
}

template <>
void CudaKernels::run(const NormLinearBackwardInput& op, cudaStream_t stream) {
  run(op.product(), stream);
  run(op.norm(), stream);
}

template <>
void PlainKernels::run(const LinearNormForward& op, cudaStream_t stream) {
  run(op.product(), stream);
  run(op.norm(), stream);
}

template <>
void PlainKernels::run(const NormLinearBackwardInput& op, cudaStream_t stream) {
  run(op.product(), stream);
  run(op.norm(), stream);
}

}  // namespace bv::BAREVISION_GPU

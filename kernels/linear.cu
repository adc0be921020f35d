// linear: out = inp weight^T + bias and its gradients, as three matrix products
//   forward  out[M,N] = inp[M,K] weight[N,K]^T + bias
//   input    dinp[M,K] = dout[M,N] weight[N,K]                              dinp =
//   weight   dweight[N,K] (+)= dout[M,N]^T inp[M,K],  dbias (+)= column sums of dout
//                                                     = or += by accumulate
// The products are cuBLASLt's (kernels/cuda/matmul.h), with fp32 sums and dweight in fp32; its
// epilogue adds the bias. Column sums: kernels/cuda/column_sums.cuh, in a fixed order.
// Limited by arithmetic: 2 M N K flops on M K + N K + M N elements.
#include <algorithm>

#include "kernels/cuda/column_sums.cuh"
#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/matmul.h"

namespace bv::BAREVISION_GPU {
namespace {

Product product(const LinearForward& op, bool has_bias) {
  const auto [M, N, K] = op.shape;
  return {.M = M,
          .N = N,
          .K = K,
          .b_transposed = true,
          .has_bias = has_bias,
          .dtype = op.dtype,
          .c_dtype = op.dtype};
}
Product product(const LinearBackwardInput& op) {
  const auto [M, N, K] = op.shape;
  return {.M = M, .N = K, .K = N, .dtype = op.dtype, .c_dtype = op.dtype};
}
Product product(const LinearBackwardWeight& op) {
  const auto [M, N, K] = op.shape;
  return {.M = N, .N = K, .K = M, .a_transposed = true, .dtype = op.dtype, .c_dtype = DType::fp32};
}

// The column sums' workspace follows the product's.
size_t padded(size_t bytes) { return ceil_div(bytes, size_t{256}) * 256; }

}  // namespace

// Pointers are not set yet, so there may be a bias or not.
template <>
size_t CudaKernels::workspace(const LinearForward& op) {
  return std::max(matmul_->workspace_bytes(product(op, true)),
                  matmul_->workspace_bytes(product(op, false)));
}

template <>
void CudaKernels::run(const LinearForward& op, cudaStream_t stream) {
  matmul_->run(
      product(op, op.bias != nullptr),
      {.c = op.out, .workspace = op.workspace, .a = op.inp, .b = op.weight, .bias = op.bias},
      stream);
}

template <>
size_t CudaKernels::workspace(const LinearBackwardInput& op) {
  return matmul_->workspace_bytes(product(op));
}

template <>
void CudaKernels::run(const LinearBackwardInput& op, cudaStream_t stream) {
  matmul_->run(product(op), {.c = op.dinp, .workspace = op.workspace, .a = op.dout, .b = op.weight},
               stream);
}

template <>
size_t CudaKernels::workspace(const LinearBackwardWeight& op) {
  return padded(matmul_->workspace_bytes(product(op))) +
         column_sums_bytes(props_, op.dtype, op.shape.M, op.shape.N);
}

template <>
void CudaKernels::run(const LinearBackwardWeight& op, cudaStream_t stream) {
  const Product p = product(op);
  matmul_->run(p,
               {.c = op.dweight,
                .workspace = op.workspace,
                .a = op.dout,
                .b = op.inp,
                .accumulate = op.accumulate},
               stream);
  if (op.dbias)
    column_sums(
        props_,
        {.out = op.dbias,
         .workspace = static_cast<char*>(op.workspace) + padded(matmul_->workspace_bytes(p)),
         .inp = op.dout,
         .rows = op.shape.M,
         .C = op.shape.N,
         .dtype = op.dtype,
         .accumulate = op.accumulate},
        stream);
}

}  // namespace bv::BAREVISION_GPU

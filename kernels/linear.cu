// linear: out = inp weight^T + bias and its gradients, as three matrix products
//   forward  out[M,N] = inp[M,K] weight[N,K]^T + bias
//   input    dinp[M,K] = dout[M,N] weight[N,K]                              dinp =
//   weight   dweight[N,K] (+)= dout[M,N]^T inp[M,K],  dbias (+)= column sums of dout
//                                                     = or += by accumulate
// The products are cuBLASLt's (kernels/cuda/matmul.h), with fp32 sums and dweight in fp32; it adds
// the bias as it writes out. The column sums are kernels/cuda/column_sums.cuh's, in a fixed order.
// Limited by arithmetic: 2 M N K flops on M K + N K + M N elements.
#include <algorithm>

#include "kernels/cuda/column_sums.cuh"
#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/matmul.h"

namespace bv::BAREVISION_GPU {
namespace {

Product product(const LinearForward& op, bool has_bias) {
  return {.M = op.shape.M,
          .N = op.shape.N,
          .K = op.shape.K,
          .a_transposed = false,
          .b_transposed = true,
          .has_bias = has_bias,
          .dtype = op.dtype,
          .c_dtype = op.dtype};
}
Product product(const LinearBackwardInput& op) {
  return {.M = op.shape.M,
          .N = op.shape.K,
          .K = op.shape.N,
          .a_transposed = false,
          .b_transposed = false,
          .has_bias = false,
          .dtype = op.dtype,
          .c_dtype = op.dtype};
}
Product product(const LinearBackwardWeight& op) {
  return {.M = op.shape.N,
          .N = op.shape.K,
          .K = op.shape.M,
          .a_transposed = true,
          .b_transposed = false,
          .has_bias = false,
          .dtype = op.dtype,
          .c_dtype = DType::fp32};
}

// The column sums' workspace begins behind the product's.
size_t padded(size_t bytes) { return ceil_div(bytes, size_t{256}) * 256; }

}  // namespace

// Pointers are not looked at here, so a bias has to be reckoned with.
template <>
size_t CudaKernels::workspace(const LinearForward& op) {
  return std::max(matmul_->workspace_bytes(product(op, true)),
                  matmul_->workspace_bytes(product(op, false)));
}

template <>
void CudaKernels::run(const LinearForward& op, cudaStream_t stream) {
  const Product p = product(op, op.bias != nullptr);
  matmul_->run(p,
               {.c = op.out,
                .workspace = op.workspace,
                .a = op.inp,
                .b = op.weight,
                .bias = op.bias,
                .accumulate = false},
               stream);
}

template <>
size_t CudaKernels::workspace(const LinearBackwardInput& op) {
  return matmul_->workspace_bytes(product(op));
}

template <>
void CudaKernels::run(const LinearBackwardInput& op, cudaStream_t stream) {
  const Product p = product(op);
  matmul_->run(p,
               {.c = op.dinp,
                .workspace = op.workspace,
                .a = op.dout,
                .b = op.weight,
                .bias = nullptr,
                .accumulate = false},
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
  const size_t bytes = matmul_->workspace_bytes(p);
  matmul_->run(p,
               {.c = op.dweight,
                .workspace = op.workspace,
                .a = op.dout,
                .b = op.inp,
                .bias = nullptr,
                .accumulate = op.accumulate},
               stream);
  if (op.dbias)
    column_sums(props_,
                {.out = op.dbias,
                 .workspace = static_cast<char*>(op.workspace) + padded(bytes),
                 .inp = op.dout,
                 .rows = op.shape.M,
                 .C = op.shape.N,
                 .dtype = op.dtype,
                 .accumulate = op.accumulate},
                stream);
}

}  // namespace bv::BAREVISION_GPU

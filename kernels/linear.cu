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

template <class Op>
void require_sizes(const Op& op, const char* name) {
  require(op.M > 0 && op.N > 0 && op.K > 0, name, "M, N, K: must be positive");
}

Product product(const LinearForward& op, bool has_bias) {
  return {.M = op.M,
          .N = op.N,
          .K = op.K,
          .a_transposed = false,
          .b_transposed = true,
          .has_bias = has_bias,
          .dtype = op.dtype,
          .c_dtype = op.dtype};
}
Product product(const LinearBackwardInput& op) {
  return {.M = op.M,
          .N = op.K,
          .K = op.N,
          .a_transposed = false,
          .b_transposed = false,
          .has_bias = false,
          .dtype = op.dtype,
          .c_dtype = op.dtype};
}
Product product(const LinearBackwardWeight& op) {
  return {.M = op.N,
          .N = op.K,
          .K = op.M,
          .a_transposed = true,
          .b_transposed = false,
          .has_bias = false,
          .dtype = op.dtype,
          .c_dtype = DType::fp32};
}

// The column sums' workspace begins behind the product's.
size_t padded(size_t bytes) { return ceil_div(bytes, size_t{256}) * 256; }

void require_workspace(const void* workspace, size_t bytes, const char* name) {
  if (bytes) require_pointer(workspace, name, "workspace");
}

}  // namespace

// Pointers are not looked at here, so a bias has to be reckoned with.
size_t CudaKernels::workspace_bytes(const LinearForward& op) {
  require_sizes(op, "LinearForward");
  return std::max(matmul_->workspace_bytes(product(op, true)),
                  matmul_->workspace_bytes(product(op, false)));
}

void CudaKernels::run(const LinearForward& op, Stream stream) {
  require_sizes(op, "LinearForward");
  require_pointer(op.out, "LinearForward", "out");
  require_pointer(op.inp, "LinearForward", "inp");
  require_pointer(op.weight, "LinearForward", "weight");
  if (op.bias) require_pointer(op.bias, "LinearForward", "bias");
  const Product p = product(op, op.bias != nullptr);
  require_workspace(op.workspace, matmul_->workspace_bytes(p), "LinearForward");
  matmul_->run(p,
               {.c = op.out,
                .workspace = op.workspace,
                .a = op.inp,
                .b = op.weight,
                .bias = op.bias,
                .accumulate = false},
               cuda_stream(stream));
}

size_t CudaKernels::workspace_bytes(const LinearBackwardInput& op) {
  require_sizes(op, "LinearBackwardInput");
  return matmul_->workspace_bytes(product(op));
}

void CudaKernels::run(const LinearBackwardInput& op, Stream stream) {
  require_sizes(op, "LinearBackwardInput");
  require_pointer(op.dinp, "LinearBackwardInput", "dinp");
  require_pointer(op.dout, "LinearBackwardInput", "dout");
  require_pointer(op.weight, "LinearBackwardInput", "weight");
  const Product p = product(op);
  require_workspace(op.workspace, matmul_->workspace_bytes(p), "LinearBackwardInput");
  matmul_->run(p,
               {.c = op.dinp,
                .workspace = op.workspace,
                .a = op.dout,
                .b = op.weight,
                .bias = nullptr,
                .accumulate = false},
               cuda_stream(stream));
}

size_t CudaKernels::workspace_bytes(const LinearBackwardWeight& op) {
  require_sizes(op, "LinearBackwardWeight");
  return padded(matmul_->workspace_bytes(product(op))) +
         column_sums_bytes(props_, op.dtype, op.M, op.N);
}

void CudaKernels::run(const LinearBackwardWeight& op, Stream stream) {
  require_sizes(op, "LinearBackwardWeight");
  require_pointer(op.dweight, "LinearBackwardWeight", "dweight");
  if (op.dbias) require_pointer(op.dbias, "LinearBackwardWeight", "dbias");
  require_pointer(op.dout, "LinearBackwardWeight", "dout");
  require_pointer(op.inp, "LinearBackwardWeight", "inp");
  const Product p = product(op);
  const size_t bytes = matmul_->workspace_bytes(p);
  require_workspace(op.workspace, op.dbias ? 1 : bytes, "LinearBackwardWeight");
  matmul_->run(p,
               {.c = op.dweight,
                .workspace = op.workspace,
                .a = op.dout,
                .b = op.inp,
                .bias = nullptr,
                .accumulate = op.accumulate},
               cuda_stream(stream));
  if (op.dbias)
    column_sums(props_,
                {.out = op.dbias,
                 .workspace = static_cast<char*>(op.workspace) + padded(bytes),
                 .inp = op.dout,
                 .rows = op.M,
                 .C = op.N,
                 .dtype = op.dtype,
                 .accumulate = op.accumulate},
                cuda_stream(stream));
}

}  // namespace bv::BAREVISION_GPU

// linear: out = inp weight^T + bias and its gradients, as three matrix products
//   forward  out[M,N] = inp[M,K] weight[N,K]^T + bias
//   input    dinp[M,K] = dout[M,N] weight[N,K]                              dinp =
//   weight   dweight[N,K] (+)= dout[M,N]^T inp[M,K],  dbias (+)= column sums of dout
//                                                     = or += by accumulate
// The products are cuBLASLt's (kernels/cuda/matmul.h), with fp32 sums and dweight in fp32; its
// epilogue adds the bias. Column sums: kernels/cuda/column_sums.cuh, in a fixed order; but where
// memory limits the weight's gradient, conv_weight_gradient.cu computes it and dbias in one pass.
// Limited by arithmetic: 2 M N K flops on M K + N K + M N elements.
#include <algorithm>

#include "kernels/conv/conv.cuh"
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

// A T4, an A100 and an H200 multiply and add about 200 times in the time of a byte from memory, an
// H100 300 times. A gradient of fewer flops a byte (ViT-Tiny's have 96 to 161, ViT-L's from 170 on)
// waits for memory, and another pass over dout for dbias would cost a third of it; above, the
// library multiplies faster than mma.sync can.
bool limited_by_memory(const LinearShape& s) {
  const double M = s.M, N = s.N, K = s.K;
  return 2 * M * N * K < 200 * (2 * (M * N + M * K) + 4 * N * K);
}
bool dbias_on_the_way(const LinearBackwardWeight& op, const DeviceProps& props) {
  const bool has_mma = op.dtype == DType::fp16 || (op.dtype == DType::bf16 && props.arch >= 80);
  return has_mma && op.shape.N % 8 == 0 && op.shape.K % 8 == 0 && limited_by_memory(op.shape);
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

// Pointers are not set yet, so dbias may be wanted or not.
template <>
size_t CudaKernels::workspace(const LinearBackwardWeight& op) {
  const size_t product_bytes = matmul_->workspace_bytes(product(op));
  if (dbias_on_the_way(op, props_))
    return std::max(product_bytes, linear_weight_gradient_bytes(props_, op.shape));
  return padded(product_bytes) + column_sums_bytes(props_, op.dtype, op.shape.M, op.shape.N);
}

template <>
void CudaKernels::run(const LinearBackwardWeight& op, cudaStream_t stream) {
  if (op.dbias && dbias_on_the_way(op, props_)) return linear_weight_gradient(props_, op, stream);
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

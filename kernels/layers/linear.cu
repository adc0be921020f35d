// linear: out = inp weight^T + bias and its gradients, as three matrix products
//   forward  out[M,N] = inp[M,K] weight[N,K]^T + bias
//   input    dinp[M,K] = dout[M,N] weight[N,K]                              dinp =
//   weight   dweight[N,K] (+)= dout[M,N]^T inp[M,K],  dbias (+)= column sums of dout
//                                                     = or += by accumulate
// The products are cuBLASLt's (kernels/cuda/matmul.h), with fp32 sums and dweight in fp32; its
// epilogue adds the bias. Column sums: kernels/cuda/column_sums.cuh, in a fixed order; but where
// linear_choice.h says so, conv_weight_gradient.cu computes the weight's gradient and dbias in one
// pass.
//
// Every sum is rounded to 16 bits once, after the bias. For rows that don't begin at multiples of
// 16 bytes cuBLASLt doesn't keep to that: on an H100 it took wmma kernels (s161616gemm_bf16), which
// store the product in bf16, and added the bias to that. Its numerical flags speak of factors and
// accumulators, not of this. So there the product stays in fp32, in the workspace, and
// round_product() adds the bias and rounds: another 8 bytes an element, of a head of 10 classes.
// Limited by arithmetic: 2 M N K flops on M K + N K + M N elements.
#include <algorithm>

#include "kernels/conv/conv.cuh"
#include "kernels/cuda/column_sums.cuh"
#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/linear_choice.h"
#include "kernels/cuda/matmul.h"
#include "kernels/cuda/pack.cuh"

namespace bv::BAREVISION_GPU {
namespace {

// All rows begin at multiples of 16 bytes in 16 bits: M is no row's length.
bool in_whole_packs(const LinearShape& s) { return s.N % 8 == 0 && s.K % 8 == 0; }

// A result's dtype as the product leaves it: fp32 where round_product() follows.
template <class Op>
DType dtype_of_sums(const Op& op) {
  return in_whole_packs(op.shape) ? op.dtype : DType::fp32;
}
bool rounded_apart(const Product& p) { return p.c_dtype != p.dtype; }

Product product(const LinearForward& op, bool has_bias) {
  const auto [M, N, K] = op.shape;
  const DType sums = dtype_of_sums(op);
  return {.M = M,
          .N = N,
          .K = K,
          .b_transposed = true,
          .has_bias = has_bias && sums == op.dtype,
          .dtype = op.dtype,
          .c_dtype = sums};
}
Product product(const LinearBackwardInput& op) {
  const auto [M, N, K] = op.shape;
  return {.M = M, .N = K, .K = N, .dtype = op.dtype, .c_dtype = dtype_of_sums(op)};
}
Product product(const LinearBackwardWeight& op) {
  const auto [M, N, K] = op.shape;
  return {.M = N, .N = K, .K = M, .a_transposed = true, .dtype = op.dtype, .c_dtype = DType::fp32};
}

bool dbias_on_the_way(const LinearBackwardWeight& op, const DeviceProps& props) {
  const bool has_mma = op.dtype == DType::fp16 || (op.dtype == DType::bf16 && props.arch >= 80);
  return has_mma && in_whole_packs(op.shape) && in_one_pass(props.arch, op.shape);
}

// In a workspace, something else follows the product's own.
size_t padded(size_t bytes) { return ceil_div(bytes, size_t{256}) * 256; }

// ---- rounding apart from the product ------------------------------------------------------------
constexpr int block_columns = 32, block_rows = 8;

// out[M,N] = sums[M,N] + bias[N], or without a bias sums. A thread has one column of every
// gridDim.y * block_rows-th row.
template <class T>
__global__ void __launch_bounds__(block_columns* block_rows)
    round_product(T* out, const float* sums, const T* bias, int M, int N) {
  const int n = static_cast<int>(blockIdx.x * block_columns + threadIdx.x);
  if (n >= N) return;
  const float added = bias ? to_float(bias[n]) : 0;
  for (int m = static_cast<int>(blockIdx.y * block_rows + threadIdx.y); m < M;
       m += static_cast<int>(gridDim.y * block_rows)) {
    const size_t at = static_cast<size_t>(m) * N + n;
    out[at] = from_float<T>(sums[at] + added);
  }
}

size_t product_bytes(Matmul& matmul, const Product& p) {
  const size_t own = matmul.workspace_bytes(p);
  return rounded_apart(p) ? padded(own) + sizeof(float) * p.M * p.N : own;
}

// out = a b + bias, rounded once. workspace: [product_bytes]
void run_product(Matmul& matmul, const Product& p, const ProductArguments& a, cudaStream_t stream) {
  if (!rounded_apart(p)) return matmul.run(p, a, stream);
  auto* const sums =
      reinterpret_cast<float*>(static_cast<char*>(a.workspace) + padded(matmul.workspace_bytes(p)));
  matmul.run(p, {.c = sums, .workspace = a.workspace, .a = a.a, .b = a.b}, stream);
  constexpr int max_blocks = 1024;  // along y: they fill a GPU
  const dim3 grid(ceil_div(p.N, block_columns), std::min(ceil_div(p.M, block_rows), max_blocks));
  by_16_bits(p.dtype, [&]<class T>() {
    launch<round_product<T>>(grid, dim3(block_columns, block_rows), 0, stream, static_cast<T*>(a.c),
                             sums, static_cast<const T*>(a.bias), p.M, p.N);
  });
}

}  // namespace

// Pointers are not set yet, so there may be a bias or not.
template <>
size_t CudaKernels::workspace(const LinearForward& op) {
  return std::max(product_bytes(*matmul_, product(op, true)),
                  product_bytes(*matmul_, product(op, false)));
}

template <>
void CudaKernels::run(const LinearForward& op, cudaStream_t stream) {
  run_product(
      *matmul_, product(op, op.bias != nullptr),
      {.c = op.out, .workspace = op.workspace, .a = op.inp, .b = op.weight, .bias = op.bias},
      stream);
}

template <>
size_t CudaKernels::workspace(const LinearBackwardInput& op) {
  return product_bytes(*matmul_, product(op));
}

template <>
void CudaKernels::run(const LinearBackwardInput& op, cudaStream_t stream) {
  run_product(*matmul_, product(op),
              {.c = op.dinp, .workspace = op.workspace, .a = op.dout, .b = op.weight}, stream);
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

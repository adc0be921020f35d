// linear: out = inp weight^T + bias and its gradients, as three matrix products
//   forward  out[M,N] = inp[M,K] weight[N,K]^T + bias
//   input    dinp[M,K] = dout[M,N] weight[N,K]                              dinp =
//   weight   dweight[N,K] (+)= dout[M,N]^T inp[M,K],  dbias (+)= column sums of dout
//                                                     = or += per accumulate
// oneDNN computes the products (kernels/cpu/matmul_onednn.h). It is fastest with both operands in
// plain row-major order, so forward first writes weight^T [K,N] to its workspace, which costs far
// less than oneDNN's own packing; in bf16, oneDNN reorders the weight into a layout of its own
// instead. Column sums: each thread owns whole columns; it adds 16 rows in registers, then adds
// these to the running sum, in a fixed order and with small rounding errors. Limited by
// arithmetic: 2 M N K flops on (M K + N K + M N) floats.
#include <omp.h>

#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/matmul_onednn.h"
#include "kernels/cpu/simd.h"
#include "kernels/cpu/transpose.h"

namespace bv::BAREVISION_ISA {
namespace {

using simd::vf;
using simd::width;

// out[columns, rows] = inp[rows, columns]^T
void transpose(float* out, const float* inp, int rows, int columns) {
  constexpr int strip = 16;  // columns: whole cache lines of inp
#pragma omp parallel for schedule(static)
  for (int c = 0; c < columns; c += strip)
    transpose_tile(out + ptrdiff_t(c) * rows, rows, inp + c, columns, rows,
                   c + strip < columns ? strip : columns - c);
}

constexpr int sum_vectors = 4;

// out[0 .. n) += column sums of inp, whose rows are `stride` apart; n <= 4 * width
template <class T>
void add_sums(float* out, const T* inp, int rows, ptrdiff_t stride, int n) {
  vf sum[sum_vectors] = {};
  if (n == sum_vectors * width) {
    for (int r = 0; r < rows; ++r)
      for (int v = 0; v < sum_vectors; ++v) sum[v] += simd::load(inp + r * stride + v * width);
    for (int v = 0; v < sum_vectors; ++v)
      simd::store(out + v * width, simd::load(out + v * width) + sum[v]);
    return;
  }
  for (int v = 0; v * width < n; ++v) {
    const int in = n - v * width < width ? n - v * width : width;
    for (int r = 0; r < rows; ++r) sum[v] += simd::load_partial(inp + r * stride + v * width, in);
    simd::store_partial(out + v * width, simd::load_partial(out + v * width, in) + sum[v], in);
  }
}

template <class T>
void sum_columns(float* out, const T* inp, int rows, int columns, bool accumulate) {
  constexpr int strip = sum_vectors * width, block = 16;
  const int strips = (columns + strip - 1) / strip;
#pragma omp parallel
  {
    const int threads = omp_get_num_threads(), thread = omp_get_thread_num();
    const int begin = strips * thread / threads * strip;
    const int end_strip = strips * (thread + 1) / threads * strip;
    const int end = end_strip < columns ? end_strip : columns;
    if (!accumulate)
      for (int c = begin; c < end; ++c) out[c] = 0;
    for (int r = 0; r < rows; r += block)
      for (int c = begin; c < end; c += strip)
        add_sums(out + c, inp + ptrdiff_t(r) * columns + c, r + block < rows ? block : rows - r,
                 columns, c + strip < end ? strip : end - c);
  }
}

template <class Op>
bool is_bf16(const Op& op) {
  return op.dtype != DType::fp32;
}

Product product(const LinearForward& op) {
  const auto [M, N, K] = op.shape;
  return {.M = M,
          .N = N,
          .K = K,
          .b_transposed = is_bf16(op),
          .has_bias = op.bias != nullptr,
          .bf16 = is_bf16(op)};
}
Product product(const LinearBackwardInput& op) {
  const auto [M, N, K] = op.shape;
  return {.M = M, .N = K, .K = N, .bf16 = is_bf16(op)};
}
Product product(const LinearBackwardWeight& op) {
  const auto [M, N, K] = op.shape;
  return {.M = N,
          .N = K,
          .K = M,
          .a_transposed = true,
          .accumulate = op.accumulate,
          .bf16 = is_bf16(op),
          .to_fp32 = true};
}

// Floats of the transposed weight, padded to 64 bytes; a bf16 weight isn't transposed.
size_t weight_count(const LinearForward& op) {
  return is_bf16(op) ? 0 : (size_t(op.shape.K) * size_t(op.shape.N) + 15) / 16 * 16;
}

}  // namespace

// Pointers aren't set yet, so the workspace allows for a bias.
template <>
size_t CpuKernels::workspace(const LinearForward& op) {
  Product with = product(op), without = with;
  with.has_bias = true, without.has_bias = false;
  const size_t a = matmul_->scratch_bytes(with), b = matmul_->scratch_bytes(without);
  return weight_count(op) * sizeof(float) + (a > b ? a : b);
}

template <>
void CpuKernels::run(const LinearForward& op) {
  if (is_bf16(op))
    return matmul_->run(product(op), op.out, op.workspace, op.inp, op.weight, op.bias);
  auto* weight = floats(op.workspace);  // weight^T [K, N]
  transpose(weight, floats(op.weight), op.shape.N, op.shape.K);
  matmul_->run(product(op), op.out, weight + weight_count(op), op.inp, weight, op.bias);
}

template <>
size_t CpuKernels::workspace(const LinearBackwardInput& op) {
  return matmul_->scratch_bytes(product(op));
}

template <>
void CpuKernels::run(const LinearBackwardInput& op) {
  matmul_->run(product(op), op.dinp, op.workspace, op.dout, op.weight, nullptr);
}

template <>
size_t CpuKernels::workspace(const LinearBackwardWeight& op) {
  return matmul_->scratch_bytes(product(op));
}

template <>
void CpuKernels::run(const LinearBackwardWeight& op) {
  matmul_->run(product(op), op.dweight, op.workspace, op.dout, op.inp, nullptr);
  if (!op.dbias) return;
  with_type(op.dtype, [&]<class T>(T) {
    sum_columns(op.dbias, as<T>(op.dout), op.shape.M, op.shape.N, op.accumulate);
  });
}

}  // namespace bv::BAREVISION_ISA

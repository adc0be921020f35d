// linear_norm.cu on Hopper's matrix product (kernels/gemm/sm90_product.cuh), in 16 bits, for rows
// of 192 channels (ViT-Tiny's), which a tile holds whole: the epilogue computes layer norm, and the
// product stays in registers (linear_norm_sm90_epilogue.cuh).
//   forward  sum[M,192] = stream + drop_path(dropout(inp[M,K] weight[192,K]^T + bias))
//            out = (sum - mean) * rstd * norm_weight + norm_bias
//   input    dnormed[M,192] = dout[M,N] weight[N,192]
//            dinp = dsum + rstd * (g - mean_C(g) - xhat * mean_C(g * xhat)),
//            g = dnormed norm_weight;   dresidual = drop_path(dinp)
//            dnorm_weight, dnorm_bias (+)= column sums
// All =, except dnorm_weight, dnorm_bias: = or += per accumulate. sum, out, dinp are rounded once.
//
// Memory is the limit (ROOFLINE.md, layer norm): 2 M (K + 3 * 192) bytes forward and
// 2 M (N + 3 * 192) backward; two operations would move 4 M 192 more, the product's round trip.
// A consumer has 64 rows, since with 128 its sums would take 192 of 232 registers; both consumers
// share b, since items of 64 rows would read 1.4 times the bytes from L2. With dropout,
// layernorm.cu computes the gradient, since the epilogue leaves no registers for Philox.
#include "kernels/cuda/hopper/hopper_kernels.h"
#include "kernels/gemm/sm90_tiles.h"
#include "kernels/layers/linear_norm_sm90_epilogue.cuh"

namespace bv::BAREVISION_GPU {
namespace {
using namespace sm90;

constexpr Tile tile{.m = norm_rows, .n = row_length, .consumers = Consumers::together};

bool fits(DType dtype, int row, int k) {
  return dtype != DType::fp32 && row == row_length && k % 8 == 0;
}

Division division_of(const NormLinearBackwardInput& op) {
  return divide(tile, op.shape.M, op.shape.K, op.shape.N);
}

}  // namespace

template <>
bool HopperKernels::takes(const LinearNormForward& op) const {
  return fits(op.dtype, op.shape.N, op.shape.K);
}
template <>
size_t HopperKernels::workspace(const LinearNormForward&) const {
  return 0;
}
template <>
void HopperKernels::run(const LinearNormForward& op, cudaStream_t stream) {
  const auto [M, N, K] = op.shape;
  const auto map = [&, M = M, N = N](const void* of) {
    return matrix_map(op.dtype, of, M, N, norm_rows);
  };
  by_16_bits(op.dtype, [&, M = M, N = N, K = K]<class T>() {
    using Tiles = Product<T, AlongK, AlongK, NormForward<T>, tile.m, tile.n, tile.consumers>;
    launch_product<Tiles>({.a = {{}, matrix_map(op.dtype, op.inp, M, K, Tiles::item_m)},
                           .b = {{}, matrix_map(op.dtype, op.weight, N, K, tile.n)},
                           .division = divide(tile, M, N, K),
                           .epilogue = {.out = map(op.out),
                                        .sum = map(op.sum),
                                        .stream = map(op.stream),
                                        .norm = op.norm(),
                                        .bias = static_cast<const T*>(op.bias)}},
                          props_, stream);
  });
}

template <>
bool HopperKernels::takes(const NormLinearBackwardInput& op) const {
  return fits(op.dtype, op.shape.K, op.shape.N) && op.dropout.drop == 0;
}
template <>
size_t HopperKernels::workspace(const NormLinearBackwardInput& op) const {
  return sizeof(NormSums::Value) * blocks_of<true>(division_of(op), props_) * row_length;
}
template <>
void HopperKernels::run_beside(const NormLinearBackwardInput& op, const ColumnSums& beside,
                               cudaStream_t stream) {
  const auto [M, N, K] = op.shape;
  const auto map = [&, M = M, K = K](const void* of) {
    return matrix_map(op.dtype, of ? of : op.dinp, M, K, norm_rows);
  };
  by_16_bits(op.dtype, [&, M = M, N = N, K = K]<class T>() {
    using Tiles = Product<T, AlongK, AlongRows, NormBackward<T>, tile.m, tile.n, tile.consumers>;
    launch_product<Tiles>(
        {.a = {{}, matrix_map(op.dtype, op.dout, M, N, Tiles::item_m)},
         .b = {{}, matrix_map(op.dtype, op.weight, N, K, 64)},
         .division = division_of(op),
         .epilogue = {.dinp = map(op.dinp),
                      .dresidual = map(op.dresidual),
                      .dsum = map(op.dsum),
                      .sum = map(op.sum),
                      .norm = op.norm(),
                      .sums = {.sums = nullptr,
                               .dweight = op.dnorm_weight,
                               .dbias = op.dnorm_bias,
                               .C = K,
                               .accumulate = op.accumulate},
                      .blocks = {static_cast<float*>(op.workspace), props_.arrived, K}},
         .beside = beside},
        props_, stream);
  });
}
template <>
void HopperKernels::run(const NormLinearBackwardInput& op, cudaStream_t stream) {
  run_beside(op, {}, stream);
}

}  // namespace bv::BAREVISION_GPU

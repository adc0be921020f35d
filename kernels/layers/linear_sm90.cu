// linear (linear.cu) on Hopper's matrix product (kernels/gemm/sm90_product.cuh), in 16 bits, with N
// and K multiples of 8, since TMA requires rows at multiples of 16 bytes:
//   forward  out[M,N]  = inp[M,K]  weight[N,K]^T + bias    both contiguous along the summed K
//   input    dinp[M,K] = dout[M,N] weight[N,K]             the weight is contiguous along its rows
//   weight   dweight[N,K] (+)= dout[M,N]^T inp[M,K]        both are contiguous along their rows
//            dbias[N] (+)= column sums of dout, from a product of dout's tile with ones
// With GELU (kernels.h), forward's epilogue computes it from the unrounded sums, and backward's
// epilogue reads h, multiplies by the slope and adds up the columns. If there is dropout, gelu.cu
// computes GELU and dropout, since the sums leave no registers for Philox.
// out and dinp =; dweight and dbias = or += per accumulate. Each sum is rounded to 16 bits once.
#include <algorithm>

#include "kernels/cuda/column_sums.cuh"
#include "kernels/cuda/hopper/hopper_kernels.h"
#include "kernels/gemm/sm90_tiles.h"
#include "kernels/layers/linear_sm90_epilogue.cuh"

namespace bv::BAREVISION_GPU {
namespace {
using namespace sm90;

// Sizes that TMA can copy. Tensors begin at multiples of 16 bytes, as the table requires.
bool fits(DType dtype, const LinearShape& s) {
  return dtype != DType::fp32 && s.N % 8 == 0 && s.K % 8 == 0;
}

// ---- Tiles ------------------------------------------------------------------------------------
constexpr int tile_rows = 128;  // of activations

template <class T, class B, class Epilogue, int tile_n, Consumers consumers>
using Activation = Product<T, AlongK, B, Epilogue, tile_rows, tile_n, consumers>;
template <class T, int tile_m, int tile_n, Consumers consumers>
using Gradient = Product<T, AlongRows, AlongRows, ToFp32, tile_m, tile_n, consumers>;

// ---- forward, input gradient ------------------------------------------------------------------
// out [M, N] = a [M, K] b, where b is [N, K] or, if B is AlongRows, [K, N].
struct Factors {
  const void *a, *b;
  int M, N, K;
  DType dtype;
};
// [M, N], in boxes of [rows, 64]
CUtensorMap activation_map(const Factors& f, const void* of, int rows = piece_rows) {
  return matrix_map(f.dtype, of, f.M, f.N, unsigned(rows));
}

template <class Epilogue>
Plan plan_activation(int M, int N, int K, const DeviceProps& props) {
  using enum Consumers;
  constexpr int widest = Epilogue::widest;
  return best_plan({{tile_rows, widest},
                    {tile_rows, 128},
                    {tile_rows, 64},
                    {tile_rows, widest, together},
                    {tile_rows, 128, together}},
                   M, N, K, props.sms);
}

template <class T, class B, class Epilogue>
void run_activation(const Factors& f, const Epilogue& epilogue, const DeviceProps& props,
                    cudaStream_t stream, const ColumnSums& beside = {}) {
  constexpr int widest = Epilogue::widest;
  const auto [tile, division] = plan_activation<Epilogue>(f.M, f.N, f.K, props);
  const auto with = [&]<int tile_n, Consumers consumers>() {
    using Tiles = Activation<T, B, Epilogue, tile_n, consumers>;
    launch_product<Tiles>({.a = {{}, matrix_map(f.dtype, f.a, f.M, f.K, Tiles::item_m)},
                           .b = {{},
                                 B::major == Major::k ? matrix_map(f.dtype, f.b, f.N, f.K, tile_n)
                                                      : matrix_map(f.dtype, f.b, f.K, f.N, 64)},
                           .division = division,
                           .epilogue = epilogue,
                           .beside = beside},
                          props, stream);
  };
  using enum Consumers;
  const bool shared = tile.consumers == together;
  if (tile.n == 64) return with.template operator()<64, in_turn>();
  if constexpr (widest > 128)
    if (tile.n == widest)
      return shared ? with.template operator()<widest, together>()
                    : with.template operator()<widest, in_turn>();
  shared ? with.template operator()<128, together>() : with.template operator()<128, in_turn>();
}

template <class T>
Bias<T> bias_of(const void* bias, int N) {
  return {static_cast<const T*>(bias), N};
}

// ---- weight gradient --------------------------------------------------------------------------
Plan plan_weight(const LinearShape& s, const DeviceProps& props) {
  using enum Consumers;
  return best_plan_in_parts(
      {{128, 192}, {128, 128}, {64, 64}, {128, 128, together}, {128, 192, together}}, s.N, s.K, s.M,
      props.sms);
}

}  // namespace

template <>
bool HopperKernels::takes(const LinearForward& op) const {
  return fits(op.dtype, op.shape);
}
template <>
size_t HopperKernels::workspace(const LinearForward&) const {
  return 0;
}
template <>
void HopperKernels::run(const LinearForward& op, cudaStream_t stream) {
  const auto [M, N, K] = op.shape;
  const Factors f{op.inp, op.weight, M, N, K, op.dtype};
  by_16_bits(op.dtype, [&]<class T>() {
    run_activation<T, AlongK>(
        f, AddBias<T>{.out = activation_map(f, op.out), .bias = bias_of<T>(op.bias, N)}, props_,
        stream);
  });
}

template <>
bool HopperKernels::takes(const LinearBackwardInput& op) const {
  return fits(op.dtype, op.shape);
}
template <>
size_t HopperKernels::workspace(const LinearBackwardInput&) const {
  return 0;
}
template <>
void HopperKernels::run_beside(const LinearBackwardInput& op, const ColumnSums& sums,
                               cudaStream_t stream) {
  const auto [M, N, K] = op.shape;
  const Factors f{op.dout, op.weight, M, K, N, op.dtype};
  by_16_bits(op.dtype, [&]<class T>() {
    run_activation<T, AlongRows>(f, AddBias<T>{.out = activation_map(f, op.dinp)}, props_, stream,
                                 sums);
  });
}
template <>
void HopperKernels::run(const LinearBackwardInput& op, cudaStream_t stream) {
  run_beside(op, {}, stream);
}

template <>
bool HopperKernels::takes(const LinearBackwardWeight& op) const {
  return fits(op.dtype, op.shape);
}
template <>
size_t HopperKernels::workspace(const LinearBackwardWeight& op) const {
  const int parts = plan_weight(op.shape, props_).division.parts;
  return parts == 1 ? 0 : sizeof(float) * parts * (size_t(op.shape.N) * op.shape.K + op.shape.N);
}
template <>
ColumnSums HopperKernels::run_in_parts(const LinearBackwardWeight& op, cudaStream_t stream) {
  const auto [M, N, K] = op.shape;
  const auto [tile, division] = plan_weight(op.shape, props_);
  const bool direct = division.parts == 1;
  auto* const partial = static_cast<float*>(op.workspace);
  const int64_t weights = int64_t{N} * K,
                biases = op.dbias ? N : 0;  // per part, which has weights, then biases
  by_16_bits(op.dtype, [&]<class T>() {
    const auto with = [&]<int tile_m, int tile_n, Consumers consumers>() {
      launch_product<Gradient<T, tile_m, tile_n, consumers>>(
          {.a = {{}, matrix_map(op.dtype, op.dout, M, N, 64)},
           .b = {{}, matrix_map(op.dtype, op.inp, M, K, 64)},
           .division = division,
           .epilogue = {.out = direct ? op.dweight : partial,
                        .sum_of_a = direct || !op.dbias ? op.dbias : partial + weights,
                        .part = weights + biases,
                        .M = N,
                        .N = K,
                        .accumulate = direct && op.accumulate}},
          props_, stream);
    };
    using enum Consumers;
    if (tile.n == 64) return with.template operator()<64, 64, in_turn>();
    if (tile.consumers == in_turn)
      return tile.n == 128 ? with.template operator()<128, 128, in_turn>()
                           : with.template operator()<128, 192, in_turn>();
    tile.n == 128 ? with.template operator()<128, 128, together>()
                  : with.template operator()<128, 192, together>();
  });
  if (direct) return {};
  return {.out = op.dweight,
          .out2 = op.dbias,
          .partial = partial,
          .C = weights,
          .C2 = biases,
          .blocks = division.parts,
          .accumulate = op.accumulate};
}
template <>
void HopperKernels::run(const LinearBackwardWeight& op, cudaStream_t stream) {
  run_and_add_up(op, stream);
}

template <>
bool HopperKernels::takes(const LinearGeluForward& op) const {
  return fits(op.dtype, op.shape) && op.dropout.drop == 0;
}
template <>
size_t HopperKernels::workspace(const LinearGeluForward&) const {
  return 0;
}
template <>
void HopperKernels::run(const LinearGeluForward& op, cudaStream_t stream) {
  const auto [M, N, K] = op.shape;
  const Factors f{op.inp, op.weight, M, N, K, op.dtype};
  by_16_bits(op.dtype, [&]<class T>() {
    run_activation<T, AlongK>(f,
                              AddBiasGelu<T>{.out = activation_map(f, op.out),
                                             .h = activation_map(f, op.h ? op.h : op.out),
                                             .stores_h = op.h != nullptr,
                                             .bias = bias_of<T>(op.bias, N)},
                              props_, stream);
  });
}

template <>
bool HopperKernels::takes(const GeluLinearBackwardInput& op) const {
  return fits(op.dtype, op.shape) && op.shape.K <= DeviceProps::counters && op.dropout.drop == 0;
}
template <>
size_t HopperKernels::workspace(const GeluLinearBackwardInput& op) const {
  const int M = op.shape.M, K = op.shape.K;
  const Division d = plan_activation<TimesGeluSlope<__half>>(M, K, op.shape.N, props_).division;
  return sizeof(float) * blocks_of<true>(d, props_) / d.tiles_n * K;
}
template <>
void HopperKernels::run_beside(const GeluLinearBackwardInput& op, const ColumnSums& sums,
                               cudaStream_t stream) {
  const auto [M, N, K] = op.shape;
  const Factors f{op.dout, op.weight, M, K, N, op.dtype};
  by_16_bits(op.dtype, [&]<class T>() {
    run_activation<T, AlongRows>(
        f,
        TimesGeluSlope<T>{.out = activation_map(f, op.dinp, tile_rows),
                          .h = activation_map(f, op.h, tile_rows),
                          .bias = bias_of<T>(op.gelu_bias, K),
                          .gradient = {op.dgelu_bias, op.accumulate},
                          .blocks = {static_cast<float*>(op.workspace), props_.arrived, K}},
        props_, stream, sums);
  });
}
template <>
void HopperKernels::run(const GeluLinearBackwardInput& op, cudaStream_t stream) {
  run_beside(op, {}, stream);
}

}  // namespace bv::BAREVISION_GPU

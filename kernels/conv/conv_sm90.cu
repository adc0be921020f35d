// Convolution on Hopper's matrix product (kernels/gemm/sm90_product.cuh), in 16 bits, one group,
// with C and K multiples of 8, since TMA's rows begin at multiples of 16 bytes:
//   forward  out[pixels, K]     = image of inp [pixels, taps C]  filter[K, taps C]^T
//            moments of out as it is rounded
//   input    dinp[pixels, C]    = add + image of dout [pixels, taps K]  filter[taps K, C]
//            and batch norm's backward sums; stride 1
//   weight   dweight[K, taps C] (+)= dout[pixels, K]^T  image of inp [pixels, taps C]
//            C a multiple of 64
// The image's matrix is never written out: TMA's im2col reads it tap by tap (conv_sm90.cuh).
#include "kernels/conv/conv_sm90.cuh"
#include "kernels/conv/conv_sm90_epilogue.cuh"
#include "kernels/cuda/column_sums.cuh"
#include "kernels/cuda/hopper/hopper_kernels.h"
#include "kernels/gemm/sm90_tiles.h"

namespace bv::BAREVISION_GPU {
namespace {
using namespace sm90;

constexpr int tile_pixels = 128;

// ---- What fits ----------------------------------------------------------------------------------
// TMA's limits: coordinates in 32 bits, element strides of 8, corners of a byte, taps of a byte.
bool fits(DType dtype, const ConvShape& s) {
  constexpr double most = double(int64_t{1} << 31);
  return dtype != DType::fp32 && s.groups == 1 && s.C % 8 == 0 && s.K % 8 == 0 && s.stride <= 8 &&
         std::max(s.R, s.S) <= 32 && s.padding <= 32 && double(s.N) * s.H * s.W < most &&
         double(s.N) * s.P() * s.Q() < most && double(s.R) * s.S * std::max(s.C, s.K) < most &&
         std::max(s.C, s.K) <= DeviceProps::counters;
}
// A step is 64 channels: with fewer than 32, most of it would be zeros.
constexpr int min_channels = 32;

// ---- The image ----------------------------------------------------------------------------------
struct ImageSize {
  int N, H, W, channels;
};
Geometry geometry_of(const ConvShape& s, bool input_gradient) {
  return input_gradient ? Geometry::backward_input(s) : Geometry::forward(s);
}

// `image` as out's pixels see it, with taps from y.first, x.first on; copies take `pixels` of them.
Pixels pixels_of(DType dtype, const void* image, const ImageSize& size, const Geometry& g,
                 const Axis& y, const Axis& x, unsigned pixels) {
  const auto [N, H, W, channels] = size;
  const bool is_matrix = y.taps == 1 && x.taps == 1 && y.step == 1 && y.first == 0 &&
                         x.first == 0 && g.Y == H && g.X == W;
  const auto upper = [](const Axis& a, int out, int in) {
    return a.first + (out - 1) * a.step - (in - 1);
  };
  const auto row_bytes = uint64_t(size_of(dtype)) * unsigned(channels);
  return {.map = is_matrix
                     ? matrix_map(dtype, image, N * H * W, channels, pixels)
                     : map_or_throw(
                           make_map(Im2colTensor{
                               .address = image,
                               .type = element_type(dtype),
                               .rank = 4,
                               .size = {unsigned(channels), unsigned(W), unsigned(H), unsigned(N)},
                               .stride = {row_bytes, row_bytes * unsigned(W),
                                          row_bytes * unsigned(W) * unsigned(H)},
                               .lower = {x.first, y.first},
                               .upper = {upper(x, g.X, W), upper(y, g.Y, H)},
                               .channels = depth,
                               .pixels = pixels,
                               .step = {unsigned(x.step), unsigned(y.step), 1},
                               .swizzle = Swizzle::b128}),
                           "a convolution's image"),
          .is_matrix = is_matrix,
          .Y = g.Y,
          .X = g.X,
          .stride = y.step,
          .first_y = y.first,
          .first_x = x.first,
          .by_image = g.by_image,
          .by_row = g.by_row};
}

Taps taps_of(const Axis& y, const Axis& x, int channels, int S) {
  const int blocks = ceil_div(channels, depth);
  return {.blocks = blocks,
          .width = x.taps,
          .first = y.filter * S + x.filter,
          .down = y.filter_step * S,
          .right = x.filter_step,
          .by_blocks = Divisor(blocks),
          .by_width = Divisor(x.taps)};
}

// [K, R S, C] in boxes of [box_K, 1, 64].
CUtensorMap filter_map(DType dtype, const void* filter, const ConvShape& s, unsigned box_K) {
  const auto row_bytes = uint64_t(size_of(dtype)) * unsigned(s.C);
  return map_or_throw(
      make_map(TiledTensor{.address = filter,
                           .type = element_type(dtype),
                           .rank = 3,
                           .size = {unsigned(s.C), unsigned(s.R * s.S), unsigned(s.K)},
                           .stride = {row_bytes, row_bytes * unsigned(s.R * s.S)},
                           .box = {depth, 1, box_K},
                           .swizzle = Swizzle::b128}),
      "a filter");
}

// ---- forward, input's gradient ------------------------------------------------------------------
// How out's pixels, [M, N], are computed from an image; forward or the input's gradient.
struct ConvProduct {
  Geometry geometry;
  Axis y, x;
  int M, N, channels;
  Tile tile;
  Division division;
};
template <bool input_gradient>
ConvProduct plan(const ConvShape& s, const DeviceProps& props) {
  const Geometry g = geometry_of(s, input_gradient);
  const Axis y = axis<input_gradient>(0, s.R, g.H, g.Y, s.stride, s.padding);
  const Axis x = axis<input_gradient>(0, s.S, g.W, g.X, s.stride, s.padding);
  const int N = input_gradient ? s.C : s.K, channels = input_gradient ? s.K : s.C;
  const Tile tile = best_tile({{tile_pixels, 128}, {tile_pixels, 64}}, g.pixels, N, props.sms);
  const int steps = y.taps * x.taps * ceil_div(channels, depth);
  return {g, y, x, g.pixels, N, channels, tile, divide(tile, g.pixels, N, steps * depth)};
}
// Padding may be all that any pixel reads.
bool has_taps(const ConvShape& s) {
  const Geometry g = geometry_of(s, false);
  return axis<false>(0, s.R, g.H, g.Y, s.stride, s.padding).taps > 0 &&
         axis<false>(0, s.S, g.W, g.X, s.stride, s.padding).taps > 0;
}
size_t statistics_bytes(const ConvProduct& p, const DeviceProps& props, int numbers) {
  return sizeof(float) * blocks_of<true>(p.division, props) / p.division.tiles_n * numbers * p.N;
}

template <class T, class B, class Epilogue>
void run_product(const ConvProduct& p, DType dtype, const ConvShape& s, const void* image,
                 const void* filter, const Epilogue& epilogue, const DeviceProps& props,
                 cudaStream_t stream) {
  const Geometry& g = p.geometry;
  const Taps taps = taps_of(p.y, p.x, p.channels, s.S);
  const auto with = [&]<int tile_n>() {
    launch_product<Product<T, Image, B, Epilogue, tile_pixels, tile_n>>(
        {.a = {{},
               pixels_of(dtype, image, {s.N, g.H, g.W, p.channels}, g, p.y, p.x, tile_pixels),
               taps},
         .b = {{}, filter_map(dtype, filter, s, B::major == Major::k ? tile_n : depth), taps},
         .division = p.division,
         .epilogue = epilogue},
        props, stream);
  };
  if (p.tile.n == 128) return with.template operator()<128>();
  with.template operator()<64>();
}
CUtensorMap out_map(const ConvProduct& p, DType dtype, const void* out) {
  return matrix_map(dtype, out, p.M, p.N, tile_pixels);
}

// dinp = add + ..., with the sums if op has them.
template <class T>
void run_input_gradient(const ConvBackwardInput& op, const ConvBackwardInputSums* with_sums,
                        const DeviceProps& props, cudaStream_t stream) {
  const ConvProduct p = plan<true>(op.shape, props);
  StoreInputGradient<T> epilogue{.out = out_map(p, op.dtype, op.dinp),
                                 .adds = op.add != nullptr,
                                 .has_norm = with_sums != nullptr,
                                 .M = p.M,
                                 .blocks = {.N = p.N}};
  if (op.add) epilogue.add = out_map(p, op.dtype, op.add);
  if (with_sums) {
    const ConvBackwardInputSums& sums = *with_sums;
    epilogue.inp = out_map(p, op.dtype, sums.norm_inp);
    epilogue.norm = {.relu_mask = sums.norm_relu_mask,
                     .mean = sums.mean,
                     .rstd = sums.rstd,
                     .weight = sums.norm_weight,
                     .bias = sums.norm_bias,
                     .relu = sums.relu};
    epilogue.sums = {.sums = sums.sums,
                     .dweight = sums.dnorm_weight,
                     .dbias = sums.dnorm_bias,
                     .C = p.N,
                     .accumulate = sums.accumulate};
    epilogue.blocks = {static_cast<float*>(sums.workspace), props.arrived, p.N};
  }
  run_product<T, FilterAlongRows>(p, op.dtype, op.shape, op.dout, op.weight, epilogue, props,
                                  stream);
}

bool takes_input_gradient(DType dtype, const ConvShape& s) {
  return fits(dtype, s) && s.stride == 1 && s.K >= min_channels && s.R > s.padding &&
         s.S > s.padding;
}

// ---- weight's gradient --------------------------------------------------------------------------
struct WeightProduct {
  Tile tile;
  Division division;
  int M, N;
};
WeightProduct plan_weight(const ConvShape& s, const DeviceProps& props) {
  const int M = s.K, N = s.R * s.S * s.C, pixels = s.N * s.P() * s.Q();
  const Tile tile = best_tile({{128, 192}, {128, 128}, {64, 192}, {64, 64}}, M, N, 1);
  return {tile, divide_into_parts(tile, M, N, pixels, props.sms), M, N};
}

}  // namespace

template <>
bool HopperKernels::takes(const ConvForward& op) const {
  return fits(op.dtype, op.shape) && op.shape.C >= min_channels && has_taps(op.shape);
}
template <>
size_t HopperKernels::workspace(const ConvForward& op) {
  return statistics_bytes(plan<false>(op.shape, props_), props_, 3);
}
template <>
void HopperKernels::run(const ConvForward& op, cudaStream_t stream) {
  const ConvProduct p = plan<false>(op.shape, props_);
  by_16_bits(op.dtype, [&]<class T>() {
    run_product<T, Filter>(
        p, op.dtype, op.shape, op.inp, op.weight,
        StoreWithMoments<T>{.out = out_map(p, op.dtype, op.out),
                            .moments = {.moments = op.batch_stats, .rows = p.M, .C = p.N},
                            .blocks = {static_cast<float*>(op.workspace), props_.arrived, p.N}},
        props_, stream);
  });
}

template <>
bool HopperKernels::takes(const ConvBackwardInput& op) const {
  return takes_input_gradient(op.dtype, op.shape);
}
template <>
size_t HopperKernels::workspace(const ConvBackwardInput&) {
  return 0;
}
template <>
void HopperKernels::run(const ConvBackwardInput& op, cudaStream_t stream) {
  by_16_bits(op.dtype, [&]<class T>() { run_input_gradient<T>(op, nullptr, props_, stream); });
}

template <>
bool HopperKernels::takes(const ConvBackwardInputSums& op) const {
  return takes_input_gradient(op.dtype, op.shape);
}
template <>
size_t HopperKernels::workspace(const ConvBackwardInputSums& op) {
  return statistics_bytes(plan<true>(op.shape, props_), props_, 2);
}
template <>
void HopperKernels::run(const ConvBackwardInputSums& op, cudaStream_t stream) {
  by_16_bits(op.dtype,
             [&]<class T>() { run_input_gradient<T>(op.input_gradient(), &op, props_, stream); });
}

template <>
bool HopperKernels::takes(const ConvBackwardWeight& op) const {
  return fits(op.dtype, op.shape) && op.shape.C % 64 == 0;
}
template <>
size_t HopperKernels::workspace(const ConvBackwardWeight& op) {
  const auto [tile, division, M, N] = plan_weight(op.shape, props_);
  return division.parts == 1 ? 0 : sizeof(float) * division.parts * M * N;
}
template <>
void HopperKernels::run(const ConvBackwardWeight& op, cudaStream_t stream) {
  const ConvShape& s = op.shape;
  const auto [tile, division, M, N] = plan_weight(s, props_);
  const bool direct = division.parts == 1;
  auto* const partial = static_cast<float*>(op.workspace);
  const int64_t weights = int64_t{M} * N;
  const Geometry g = geometry_of(s, false);
  const auto all_taps = [&](int taps) {  // as no pixel may need the outer ones
    return Axis{.pixels = 0,
                .step = s.stride,
                .first = -s.padding,
                .taps = taps,
                .filter = 0,
                .filter_step = 1};
  };
  const Axis y = all_taps(s.R), x = all_taps(s.S);
  by_16_bits(op.dtype, [&]<class T>() {
    const auto with = [&]<int tile_m, int tile_n>() {
      launch_product<Product<T, AlongRows, ImageAlongRows, ToFp32, tile_m, tile_n>>(
          {.a = {{}, matrix_map(op.dtype, op.dout, g.pixels, s.K, depth)},
           .b = {{},
                 pixels_of(op.dtype, op.inp, {s.N, s.H, s.W, s.C}, g, y, x, depth),
                 taps_of(y, x, s.C, s.S)},
           .division = division,
           .epilogue = {.out = direct ? op.dweight : partial,
                        .sum_of_a = nullptr,
                        .part = weights,
                        .M = M,
                        .N = N,
                        .accumulate = direct && op.accumulate}},
          props_, stream);
    };
    if (tile.m == 128 && tile.n == 128) return with.template operator()<128, 128>();
    if (tile.m == 128) return with.template operator()<128, 192>();
    if (tile.n == 192) return with.template operator()<64, 192>();
    with.template operator()<64, 64>();
  });
  if (!direct)
    finish_column_sums({.out = op.dweight,
                        .partial = partial,
                        .blocks = division.parts,
                        .C = weights,
                        .accumulate = op.accumulate},
                       stream);
}

}  // namespace bv::BAREVISION_GPU

// Convolution on Hopper's matrix product (kernels/gemm/sm90_product.cuh), in 16 bits, one group,
// with C and K multiples of 8, since TMA requires rows at multiples of 16 bytes:
//   forward  out[pixels, K]     = im2col of inp [pixels, taps C]  filter[K, taps C]^T
//            moments of out's rounded values
//   input    dinp[pixels, C]    = add + im2col of dout [pixels, taps K]  filter[taps K, C]
//            and batch norm's backward sums; stride 1, or 2 in its four phases (conv_geometry.cuh)
//   weight   dweight[K, taps C] (+)= dout[pixels, K]^T  im2col of inp [pixels, taps C]
//            C a multiple of 64
// The im2col matrix is never written out: TMA reads it tap by tap (conv_sm90.cuh).
#include <algorithm>
#include <functional>
#include <vector>

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
// TMA's limits: 32-bit coordinates, element strides of at most 8, box corners that fit a byte. The
// kernel's limits: the size of the table of taps, and one counter per tile of columns.
bool fits(DType dtype, const ConvShape& s) {
  constexpr double most = double(int64_t{1} << 31);
  return dtype != DType::fp32 && s.groups == 1 && s.C % 8 == 0 && s.K % 8 == 0 && s.stride <= 8 &&
         s.R * s.S <= Taps::max_count && s.padding <= 32 && double(s.N) * s.H * s.W < most &&
         double(s.N) * s.P() * s.Q() < most && double(s.R) * s.S * std::max(s.C, s.K) < most &&
         std::max(s.C, s.K) <= DeviceProps::counters;
}
// A step is 64 channels: with fewer than 32, most of the step would be zeros.
constexpr int min_channels = 32;

// ---- The image ----------------------------------------------------------------------------------
struct ImageSize {
  int N, H, W, channels;
};
Geometry geometry_of(const ConvShape& s, bool input_gradient) {
  return input_gradient ? Geometry::backward_input(s) : Geometry::forward(s);
}

// The taps with which out's pixels read an image, by phase, the phase with the most taps first.
// Relative to a pixel's position, taps read rows first_y to last_y and columns first_x to last_x.
struct View {
  int step;
  int first_y = 0, last_y = 0, first_x = 0, last_x = 0;
  int count = 0;  // of taps
  Taps::Tap taps[Taps::max_count]{};
  std::vector<Phase> phases;
};
template <bool input_gradient>
View view_of(const ConvShape& s, const Geometry& g) {
  View v{.step = input_gradient ? 1 : s.stride};
  const int phases = input_gradient ? s.stride * s.stride : 1;
  for (int i = 0; i < phases; ++i)
    v.phases.push_back(Phase::of_block<input_gradient>(g, i, phases));
  std::ranges::stable_sort(v.phases, std::greater{}, &Phase::taps);
  bool any = false;
  for (const Phase& p : v.phases) {
    if (p.taps() == 0) continue;
    const int last_y = p.y.first + p.y.taps - 1, last_x = p.x.first + p.x.taps - 1;
    v.first_y = any ? std::min(v.first_y, p.y.first) : p.y.first;
    v.first_x = any ? std::min(v.first_x, p.x.first) : p.x.first;
    v.last_y = any ? std::max(v.last_y, last_y) : last_y;
    v.last_x = any ? std::max(v.last_x, last_x) : last_x;
    any = true;
  }
  for (const auto& [a, b, y, x] : v.phases)
    for (int i = 0; i < y.taps; ++i)
      for (int j = 0; j < x.taps; ++j)
        v.taps[v.count++] = {.i = uint8_t(y.first + i - v.first_y),
                             .j = uint8_t(x.first + j - v.first_x),
                             .number = uint16_t((y.filter + i * y.filter_step) * s.S + x.filter +
                                                j * x.filter_step)};
  return v;
}
// Includes taps that fall on padding for every pixel.
View view_of_all_taps(const ConvShape& s) {
  View v{.step = s.stride,
         .first_y = -s.padding,
         .last_y = s.R - 1 - s.padding,
         .first_x = -s.padding,
         .last_x = s.S - 1 - s.padding,
         .count = s.R * s.S};
  for (int i = 0; i < v.count; ++i)
    v.taps[i] = {.i = uint8_t(i / s.S), .j = uint8_t(i % s.S), .number = uint16_t(i)};
  return v;
}

// Describes how the View reads `image`; a copy moves `pixels` pixels.
Pixels pixels_of(DType dtype, const void* image, const ImageSize& size, const Geometry& g,
                 const View& v, unsigned pixels) {
  const auto [N, H, W, channels] = size;
  const bool is_matrix = v.step == 1 && v.first_y == 0 && v.last_y == 0 && v.first_x == 0 &&
                         v.last_x == 0 && g.Y == H && g.X == W;
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
                               .lower = {v.first_x, v.first_y},
                               .upper = {v.first_x + (g.X - 1) * v.step - (W - 1),
                                         v.first_y + (g.Y - 1) * v.step - (H - 1)},
                               .channels = depth,
                               .pixels = pixels,
                               .step = {unsigned(v.step), unsigned(v.step), 1},
                               .swizzle = Swizzle::b128}),
                           "a convolution's image"),
          .is_matrix = is_matrix,
          .Y = g.Y,
          .X = g.X,
          .stride = v.step,
          .first_y = v.first_y,
          .first_x = v.first_x,
          .by_image = g.by_image,
          .by_row = g.by_row};
}

Taps taps_of(const View& v, int channels) {
  const int blocks = ceil_div(channels, depth);
  Taps taps{.last = v.count - 1, .blocks = blocks, .by_blocks = Divisor(blocks), .taps = {}};
  std::ranges::copy(v.taps, taps.taps);
  return taps;
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

// ---- forward, input gradient --------------------------------------------------------------------
// How out [M, N], M pixels, is computed from an image, in forward or in the input gradient.
struct ConvProduct {
  Geometry geometry;
  View view;
  int M, N, channels;
  Plan plan;

  bool has_phases() const { return view.phases.size() > 1; }
};
template <bool input_gradient>
ConvProduct plan(const ConvShape& s, const DeviceProps& props) {
  const Geometry g = geometry_of(s, input_gradient);
  const View view = view_of<input_gradient>(s, g);
  const int N = input_gradient ? s.C : s.K, channels = input_gradient ? s.K : s.C;
  const int phases = int(view.phases.size()), blocks = ceil_div(channels, depth);
  const int K = ceil_div(view.count, phases) * blocks * depth;  // a phase's, on average
  const auto best = [&](std::initializer_list<Tile> tiles) {
    return best_plan(tiles, g.pixels * phases, N, K, props.sms);
  };
  constexpr Tile wide{tile_pixels, 128}, narrow{tile_pixels, 64};
  if (phases == 1)
    return {g, view,     g.pixels,
            N, channels, best({wide, narrow, {tile_pixels, 128, Consumers::together}})};
  const Tile tile = best({wide, narrow}).tile;
  Division d = divide(tile, g.pixels, N, view.count * blocks * depth);
  d.parts = phases;
  for (int i = 0, end = 0; i < phases; ++i)
    d.phase[i] = end += std::max(1, view.phases[size_t(i)].taps() * blocks);
  return {g, view, g.pixels, N, channels, {tile, d}};
}
size_t statistics_bytes(const ConvProduct& p, const DeviceProps& props, int numbers) {
  const Division& d = p.plan.division;
  return sizeof(float) * blocks_of<true>(d, props) / d.tiles_n * numbers * p.N;
}

template <class T, class B, class Epilogue>
void run_product(const ConvProduct& p, DType dtype, const ConvShape& s, const void* image,
                 const void* filter, const Epilogue& epilogue, const DeviceProps& props,
                 cudaStream_t stream, const ColumnSums& beside = {}) {
  const Geometry& g = p.geometry;
  const Taps taps = taps_of(p.view, p.channels);
  const auto with = [&]<int tile_n, Consumers consumers>() {
    using Tiles = Product<T, Image, B, Epilogue, tile_pixels, tile_n, consumers>;
    launch_product<Tiles>(
        {.a = {{},
               pixels_of(dtype, image, {s.N, g.H, g.W, p.channels}, g, p.view, Tiles::item_m),
               taps},
         .b = {{}, filter_map(dtype, filter, s, B::major == Major::k ? tile_n : depth), taps},
         .division = p.plan.division,
         .epilogue = epilogue,
         .beside = beside},
        props, stream);
  };
  using enum Consumers;
  const Tile& tile = p.plan.tile;
  if constexpr (!Epilogue::phases)
    if (tile.consumers == together) return with.template operator()<128, together>();
  if (tile.n == 128) return with.template operator()<128, in_turn>();
  with.template operator()<64, in_turn>();
}
CUtensorMap out_map(const ConvProduct& p, DType dtype, const void* out) {
  return matrix_map(dtype, out, p.M, p.N, tile_pixels);
}

// dinp = add + ..., and batch norm's sums if with_sums isn't null.
template <class T>
void run_input_gradient(const ConvBackwardInput& op, const ConvBackwardInputSums* with_sums,
                        const ColumnSums& beside, const DeviceProps& props, cudaStream_t stream) {
  const ConvProduct p = plan<true>(op.shape, props);
  const auto with = [&](const auto& rows) {
    StoreInputGradient<T, std::remove_cvref_t<decltype(rows)>> epilogue{
        .rows = rows,
        .adds = op.add != nullptr,
        .has_norm = with_sums != nullptr,
        .blocks = {.N = p.N}};
    if (with_sums) {
      const ConvBackwardInputSums& sums = *with_sums;
      epilogue.norm = {.relu_mask = sums.norm_relu_mask,
                       .rows = op.shape.N * op.shape.H * op.shape.W,
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
                                    stream, beside);
  };
  const void* const norm_inp = with_sums ? with_sums->norm_inp : nullptr;
  if (p.has_phases()) {
    PhaseRows<T> rows{.out = static_cast<T*>(op.dinp),
                      .add = static_cast<const T*>(op.add),
                      .inp = static_cast<const T*>(norm_inp),
                      .N = p.N,
                      .geometry = p.geometry,
                      .phase = {}};
    std::ranges::copy(p.view.phases, rows.phase);
    return with(rows);
  }
  ConsecutiveRows<T> rows{.out = out_map(p, op.dtype, op.dinp), .M = p.M};
  if (op.add) rows.add = out_map(p, op.dtype, op.add);
  if (norm_inp) rows.inp = out_map(p, op.dtype, norm_inp);
  with(rows);
}

bool takes_input_gradient(DType dtype, const ConvShape& s) {
  return fits(dtype, s) && s.stride * s.stride <= Division::max_phases && s.K >= min_channels &&
         s.R > s.padding && s.S > s.padding;
}

// Whether any pixel has a tap inside the image: with some shapes, all taps fall on padding.
bool has_taps(const ConvShape& s) { return view_of<false>(s, geometry_of(s, false)).count > 0; }

// ---- weight gradient ----------------------------------------------------------------------------
Plan plan_weight(const ConvShape& s, const DeviceProps& props) {
  using enum Consumers;
  return best_plan_in_parts(
      {{128, 192}, {128, 128}, {64, 192}, {64, 64}, {128, 128, together}, {128, 192, together}},
      s.K, s.R * s.S * s.C, s.N * s.P() * s.Q(), props.sms);
}

}  // namespace

template <>
bool HopperKernels::takes(const ConvForward& op) const {
  return fits(op.dtype, op.shape) && op.shape.C >= min_channels && has_taps(op.shape);
}
template <>
size_t HopperKernels::workspace(const ConvForward& op) const {
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
size_t HopperKernels::workspace(const ConvBackwardInput&) const {
  return 0;
}
template <>
void HopperKernels::run_beside(const ConvBackwardInput& op, const ColumnSums& sums,
                               cudaStream_t stream) {
  by_16_bits(op.dtype,
             [&]<class T>() { run_input_gradient<T>(op, nullptr, sums, props_, stream); });
}
template <>
void HopperKernels::run(const ConvBackwardInput& op, cudaStream_t stream) {
  run_beside(op, {}, stream);
}

template <>
bool HopperKernels::takes(const ConvBackwardInputSums& op) const {
  return takes_input_gradient(op.dtype, op.shape);
}
template <>
size_t HopperKernels::workspace(const ConvBackwardInputSums& op) const {
  return statistics_bytes(plan<true>(op.shape, props_), props_, 2);
}
template <>
void HopperKernels::run_beside(const ConvBackwardInputSums& op, const ColumnSums& sums,
                               cudaStream_t stream) {
  by_16_bits(op.dtype, [&]<class T>() {
    run_input_gradient<T>(op.input_gradient(), &op, sums, props_, stream);
  });
}
template <>
void HopperKernels::run(const ConvBackwardInputSums& op, cudaStream_t stream) {
  run_beside(op, {}, stream);
}

template <>
bool HopperKernels::takes(const ConvBackwardWeight& op) const {
  return fits(op.dtype, op.shape) && op.shape.C % 64 == 0;
}
template <>
size_t HopperKernels::workspace(const ConvBackwardWeight& op) const {
  const Division d = plan_weight(op.shape, props_).division;
  return d.parts == 1 ? 0 : sizeof(float) * d.parts * op.shape.weight_count();
}
template <>
ColumnSums HopperKernels::run_in_parts(const ConvBackwardWeight& op, cudaStream_t stream) {
  const ConvShape& s = op.shape;
  const auto [tile, division] = plan_weight(s, props_);
  const bool direct = division.parts == 1;
  auto* const partial = static_cast<float*>(op.workspace);
  const int64_t weights = s.weight_count();
  const Geometry g = geometry_of(s, false);
  const View view = view_of_all_taps(s);
  by_16_bits(op.dtype, [&]<class T>() {
    const auto with = [&]<int tile_m, int tile_n, Consumers consumers>() {
      launch_product<Product<T, AlongRows, ImageAlongRows, ToFp32, tile_m, tile_n, consumers>>(
          {.a = {{}, matrix_map(op.dtype, op.dout, g.pixels, s.K, depth)},
           .b = {{},
                 pixels_of(op.dtype, op.inp, {s.N, s.H, s.W, s.C}, g, view, depth),
                 taps_of(view, s.C)},
           .division = division,
           .epilogue = {.out = direct ? op.dweight : partial,
                        .sum_of_a = nullptr,
                        .part = weights,
                        .M = s.K,
                        .N = s.R * s.S * s.C,
                        .accumulate = direct && op.accumulate}},
          props_, stream);
    };
    using enum Consumers;
    if (tile.m == 64 && tile.n == 64) return with.template operator()<64, 64, in_turn>();
    if (tile.m == 64) return with.template operator()<64, 192, in_turn>();
    if (tile.consumers == in_turn)
      return tile.n == 128 ? with.template operator()<128, 128, in_turn>()
                           : with.template operator()<128, 192, in_turn>();
    tile.n == 128 ? with.template operator()<128, 128, together>()
                  : with.template operator()<128, 192, together>();
  });
  if (direct) return {};
  return {.out = op.dweight,
          .partial = partial,
          .C = weights,
          .blocks = division.parts,
          .accumulate = op.accumulate};
}
template <>
void HopperKernels::run(const ConvBackwardWeight& op, cudaStream_t stream) {
  run_and_add_up(op, stream);
}

}  // namespace bv::BAREVISION_GPU

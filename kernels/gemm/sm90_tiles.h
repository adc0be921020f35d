// The host's side of Hopper's matrix product (sm90_product.cuh): tiles, blocks and maps.
#pragma once
#include <algorithm>
#include <stdexcept>
#include <string>

#include "kernels/cuda/hopper/tensor_map.h"
#include "kernels/gemm/sm90_product.cuh"

namespace bv::BAREVISION_GPU::sm90 {

inline ElementType element_type(DType dtype) {
  return dtype == DType::fp16 ? ElementType::f16 : ElementType::bf16;
}
inline CUtensorMap map_or_throw(const MadeMap& made, const char* what) {
  if (made.why != NoMap::fits)
    throw std::logic_error(std::string(what) + " for TMA: " + str(made.why));
  return made.map;
}

// A row-major matrix [rows, columns] in boxes of [box_rows, 64].
inline CUtensorMap matrix_map(DType dtype, const void* matrix, int rows, int columns,
                              unsigned box_rows) {
  return map_or_throw(make_map(TiledTensor{.address = matrix,
                                           .type = element_type(dtype),
                                           .rank = 2,
                                           .size = {unsigned(columns), unsigned(rows)},
                                           .stride = {size_of(dtype) * columns},
                                           .box = {depth, box_rows},
                                           .swizzle = Swizzle::b128}),
                      "a matrix");
}

// The size of tiles of out [M, N] with the least work of the busiest block; the first of equals.
struct Tile {
  int m, n;
};
inline Tile best_tile(std::initializer_list<Tile> tiles, int M, int N, int sms) {
  // A step's clocks: 4096 flops and 32 bytes from L2 in each (bench/roofline), the slower of both.
  const auto step = [](const Tile& t) { return std::max(t.m * t.n / 32, 4 * (t.m + t.n)); };
  const auto work = [&](const Tile& t) {
    return double(ceil_div(ceil_div(M, t.m) * ceil_div(N, t.n), sms)) * step(t);
  };
  return *std::ranges::min_element(tiles, {}, work);
}

inline Division divide(const Tile& tile, int M, int N, int K, int parts = 1) {
  const int steps = ceil_div(K, depth), part_steps = ceil_div(steps, parts);
  return {.tiles_m = ceil_div(M, tile.m),
          .tiles_n = ceil_div(N, tile.n),
          .steps = steps,
          .parts = ceil_div(steps, part_steps),
          .part_steps = part_steps};
}

// The division of k with the least steps of the busiest block, in parts of 16 or more, since adding
// up shorter ones costs more; storing an item's sums takes as long as three.
inline Division divide_into_parts(const Tile& tile, int M, int N, int K, int sms) {
  const auto work = [&](int parts) {
    const Division d = divide(tile, M, N, K, parts);
    return ceil_div(d.items(), sms) * (d.part_steps + 3);
  };
  int best = 1;
  for (int parts = 2; parts <= ceil_div(K, depth) / 16; ++parts)
    if (work(parts) < work(best)) best = parts;
  return divide(tile, M, N, K, best);
}

// A block on each SM; with the same columns in all of a block's items, in whole rows of tiles.
template <bool same_columns>
int blocks_of(const Division& d, const DeviceProps& props) {
  if (!same_columns) return std::min(d.items(), props.sms);
  return std::min(d.tiles_m, std::max(1, props.sms / d.tiles_n)) * d.tiles_n;
}
template <class Product>
void launch_product(const typename Product::Arguments& arguments, const DeviceProps& props,
                    cudaStream_t stream) {
  launch<sm90_product<Product>>(blocks_of<Product::same_columns>(arguments.division, props),
                                threads, sizeof(typename Product::Shared), stream, arguments);
}

}  // namespace bv::BAREVISION_GPU::sm90

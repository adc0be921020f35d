// The host side of Hopper's matrix product (sm90_product.cuh): tiles, blocks and tensor maps.
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

// A consumer's tile, and how the consumers share items.
struct Tile {
  int m, n;
  Consumers consumers = Consumers::in_turn;

  int item_m() const { return consumers == Consumers::together ? sm90::consumers * m : m; }
};

inline Division divide(const Tile& tile, int M, int N, int K, int parts = 1) {
  const int steps = ceil_div(K, depth), part_steps = ceil_div(steps, parts);
  return {.M = M,
          .tiles_m = ceil_div(M, tile.item_m()),
          .tiles_n = ceil_div(N, tile.n),
          .steps = steps,
          .parts = ceil_div(steps, part_steps),
          .part_steps = part_steps};
}

// ---- The choice -------------------------------------------------------------------------------
// Estimates in clocks. Per clock, an SM reads 32 bytes from L2 (bench/roofline) and executes 4096
// flops.
constexpr double bytes_a_clock = 32;

// The busiest block's clocks. sum_bytes: bytes of a stored sum. Storing a sum takes a thread 16
// clocks; consumers that take turns overlap this with each other's products.
inline double block_clocks(const Tile& t, const Division& d, int sms, int sum_bytes) {
  const double m = t.item_m(), n = t.n;
  const double step = std::max(m * n * depth * 2 / 4096, (m + n) * depth * 2 / bytes_a_clock);
  const double multiply = d.part_steps * step;
  const double store = std::max(16. * t.m * n / warpgroup, m * n * sum_bytes / bytes_a_clock);
  const double item = t.consumers == Consumers::together
                          ? multiply + store
                          : std::max(multiply, (multiply + store) / consumers);
  return ceil_div(d.items(), sms) * item;
}

struct Plan {
  Tile tile;
  Division division;
};
// The tile with the fewest clocks for a 16-bit out [M, N]; in a tie, the first.
inline Plan best_plan(std::initializer_list<Tile> tiles, int M, int N, int K, int sms) {
  const auto clocks = [&](const Tile& t) {
    return block_clocks(t, divide(t, M, N, K), sms, /*sum_bytes=*/2);
  };
  const Tile& best = *std::ranges::min_element(tiles, {}, clocks);
  return {best, divide(best, M, N, K)};
}
// The same for fp32 sums, with k split into parts of at least 8 steps. Another kernel adds up the
// parts' sums; its launch takes 3000 clocks.
inline Plan best_plan_in_parts(std::initializer_list<Tile> tiles, int M, int N, int K, int sms) {
  Plan best{};
  double fewest = 0;
  for (const Tile& t : tiles)
    for (int parts = 1; parts == 1 || parts <= ceil_div(K, depth) / 8; ++parts) {
      const Division d = divide(t, M, N, K, parts);
      if (d.items() > 2 * sms && parts > 1) break;
      const double add_up = d.parts == 1 ? 0 : 3000 + 4. * d.parts * M * N / (bytes_a_clock * sms);
      const double clocks = block_clocks(t, d, sms, /*sum_bytes=*/4) + add_up;
      if (fewest == 0 || clocks < fewest) best = {t, d}, fewest = clocks;
    }
  return best;
}

// One block per SM, at most one per item; with same_columns, a multiple of tiles_n. Then each block
// has sums of its own, so their number doesn't depend on what runs beside the kernel.
template <bool same_columns>
int blocks_of(const Division& d, const DeviceProps& props) {
  if (!same_columns) return std::min(d.items(), props.blocks);
  return std::min(d.tiles_m * d.parts, std::max(1, props.sms / d.tiles_n)) * d.tiles_n;
}
template <class Product>
void launch_product(const typename Product::Arguments& arguments, const DeviceProps& props,
                    cudaStream_t stream) {
  launch<sm90_product<Product>>(blocks_of<Product::same_columns>(arguments.division, props),
                                threads, sizeof(typename Product::Shared), stream, arguments);
}

}  // namespace bv::BAREVISION_GPU::sm90

// Partitions a model's blocks into parts. Layers before the first block belong to the first part,
// the head to the last part. With P stages of V parts (chunks) each, part i is chunk i / P of stage
// i % P.
#pragma once
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "engine/options/options.h"
#include "models/graph/graph.h"

namespace bv {

struct BlockCost {
  Slice nodes{};
  double parameters = 0;
  double forward = 0, backward = 0;  // flops
};

std::vector<BlockCost> blocks_of(const Graph&, Kernels&);

// "6,6,6,6", as --partition takes them.
std::string list_of(std::span<const int> blocks);

// Number of blocks of each part. Throws UserError if there are fewer blocks than parts, or if a
// given list doesn't match the number of parts or blocks.
std::vector<int> partition(std::span<const BlockCost>, int parts, const Partition&);

// The parts as nodes and as the sums of their blocks.
std::vector<BlockCost> parts_of(std::span<const BlockCost>, std::span<const int> blocks);

// Splits the weights into non-empty consecutive parts with the smallest possible largest sum;
// returns the number of weights in each.
std::vector<int> min_largest_sum(std::span<const double> weights, int parts);

}  // namespace bv

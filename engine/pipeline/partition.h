// Partition of a model's blocks into parts. Layers before the first block belong to the first part,
// the head to the last. With P stages of V parts (chunks) each, part i is chunk i / P of stage
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

// Blocks of each part. Throws UserError if there are fewer blocks than parts, or if a list has
// another number of parts or of blocks.
std::vector<int> partition(std::span<const BlockCost>, int parts, const Partition&);

// The parts as nodes and as the sums of their blocks.
std::vector<BlockCost> parts_of(std::span<const BlockCost>, std::span<const int> blocks);

// Positive counts of consecutive weights, of which the largest sum is as small as possible.
std::vector<int> min_largest_sum(std::span<const double> weights, int parts);

}  // namespace bv

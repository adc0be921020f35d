// Small helpers for shapes and layers, shared by all nodes.
#pragma once
#include <cstdint>
#include <functional>
#include <numeric>
#include <vector>

#include "models/graph/graph.h"

namespace bv {

// The layer number of the next node: the number of layers before it.
inline uint32_t layer_number(const Graph& g) {
  uint32_t layers = 0;
  for (const Node& node : g.nodes()) layers += static_cast<uint32_t>(node.layers);
  return layers;
}
inline int dim(const Graph& g, Tensor t, size_t i) { return static_cast<int>(g.info(t).shape[i]); }
// [..., C] as a matrix.
inline RowsShape rows_shape(const Graph& g, Tensor t) {
  const std::vector<int64_t>& shape = g.info(t).shape;
  const auto rows = std::accumulate(shape.begin(), shape.end() - 1, int64_t{1}, std::multiplies());
  return {.rows = static_cast<int>(rows), .C = static_cast<int>(shape.back())};
}

// The shape of the first tokens of each image: [B, tokens, C], or [B, C] for one token.
inline std::vector<int64_t> tokens_shape(int B, int tokens, int C) {
  if (tokens == 1) return {B, C};
  return {B, tokens, C};
}

}  // namespace bv

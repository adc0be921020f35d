// Small questions about shapes and layers that all nodes ask.
#pragma once
#include <cstdint>
#include <functional>
#include <numeric>
#include <vector>

#include "models/graph/graph.h"

namespace bv {

inline int rows_of(const TensorInfo& t) {
  return static_cast<int>(
      std::accumulate(t.shape.begin(), t.shape.end() - 1, int64_t{1}, std::multiplies<>()));
}
inline std::vector<int64_t> with_last(std::vector<int64_t> shape, int64_t last) {
  shape.back() = last;
  return shape;
}
inline uint32_t layer_number(const Graph& graph) {
  return static_cast<uint32_t>(graph.nodes().size());
}

inline int dim(const Graph& g, Tensor t, size_t i) { return static_cast<int>(g.info(t).shape[i]); }

}  // namespace bv

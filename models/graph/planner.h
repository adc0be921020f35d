// What each node says of its needs, from which all memory is planned (engine/training/plan.h).
#pragma once
#include <initializer_list>
#include <vector>

#include "models/graph/graph.h"

namespace bv {

// Collects what nodes touch.
class Planner {
 public:
  Planner(const Graph& graph, Kernels& kernels) : graph_(graph), kernels_(kernels) {}
  Kernels& kernels() const { return kernels_; }
  // A run without memory, to make operations whose sizes are asked for.
  Context blank() const { return {.graph = &graph_}; }

  struct Pass {
    std::vector<Tensor> tensors;  // read or written
    size_t workspace = 0;
    Pass& uses(std::initializer_list<Tensor> list) {
      for (const Tensor t : list)
        if (t) tensors.push_back(t);
      return *this;
    }
    Pass& needs(size_t bytes) {
      workspace = bytes > workspace ? bytes : workspace;
      return *this;
    }
  };
  Pass forward, backward;  // of the node that is being planned
  Tensor grad(Tensor t) const { return t ? Tensor{graph_.info(t).grad} : t; }

 private:
  const Graph& graph_;
  Kernels& kernels_;
};

}  // namespace bv

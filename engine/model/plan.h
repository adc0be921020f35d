// The memory plan: where every tensor of a stage is, decided by liveness before the first step.
//
// Time runs over the nodes forward, then backward. A storage that both passes touch, or that
// crosses the stage's border, is saved: each micro-batch in flight has its own copy. The rest is
// scratch, shared by all micro-batches; storages whose lives don't overlap share memory. With
// `recompute` (Chen et al. 2016) a block's nodes run forward again just before they run backward: a
// storage that only they touch has two short lives and is scratch, and only the block's input is
// saved. The model's last block goes backward right after its forward, so it is not recomputed. Of
// a stage that runs forward alone nothing is saved.
#pragma once
#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

#include "models/graph/graph.h"

namespace bv {

struct Life {  // a time of use, both ends included
  int first, last;
};

bool overlap(const std::vector<Life>&, const std::vector<Life>&);

struct Layout {
  struct Place {
    enum Kind : uint8_t { absent, saved, scratch } kind = absent;
    size_t offset = 0, bytes = 0;
    std::vector<Life> live_ranges = {};
  };
  // Nodes [begin, end) of the block that ends at `cut` run forward again before backward of node
  // `before` - 1.
  struct Recompute {
    int begin, end, cut, before;
  };
  std::vector<Place> places;                                  // by storage id
  std::vector<size_t> forward_workspace, backward_workspace;  // offset in scratch, by node - begin
  size_t saved_bytes = 0;                                     // of one slot
  size_t scratch_bytes = 0;
  std::vector<Recompute> recomputes;  // in the graph's order
  std::vector<int> inputs, outputs;   // storages that cross the stage's borders in forward
  std::vector<int> input_grads, output_grads;
};

enum class Passes : uint8_t { both, recompute, forward };

Layout plan_stage(const Graph&, Kernels&, int begin, int end, Passes = Passes::both);

// A run's memory in bytes, as --plan prints it and as it is then allocated.
struct MemoryPlan {
  size_t weights, gradients, optimizer, ema, compute_weights, activations, scratch, batches;
  // On the host of rank 0: two checkpoints on their way to the disk.
  size_t checkpoints;
  // On the device.
  size_t peak() const {
    return weights + gradients + optimizer + ema + compute_weights + activations + scratch +
           batches;
  }
};
void print_plan(std::ostream&, const Graph&, const Layout&, const MemoryPlan&);
std::string format_bytes(size_t);  // "23.5 MiB"

}  // namespace bv

// The memory plan: the place of every tensor of a stage, decided by liveness before the first step.
//
// Time runs over the nodes forward, then backward. A storage that both passes touch, or that
// crosses the stage's border, is saved: each micro-batch in flight has its own copy. The rest is
// scratch, shared by all micro-batches; storages whose live ranges don't overlap share memory. With
// `recompute` (Chen et al. 2016) a block's forward is repeated just before its backward: a storage
// that only this block touches has two short live ranges and becomes scratch; only the block's
// input is saved. The model's last block is not recomputed, since its backward follows its forward
// directly. A stage that only runs forward saves nothing.
#pragma once
#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

#include "models/graph/graph.h"

namespace bv {

struct Life {  // a live range, both ends included
  int first, last;
};

bool overlap(const std::vector<Life>&, const std::vector<Life>&);

struct Layout {
  struct Place {
    enum Kind : uint8_t { absent, saved, scratch } kind = absent;
    size_t offset = 0, bytes = 0;
    std::vector<Life> live_ranges = {};
  };
  // The forward of nodes [begin, end), in the block that ends at `cut`, is repeated before the
  // backward of node `before` - 1.
  struct Recompute {
    int begin, end, cut, before;
  };
  std::vector<Place> places;                                  // by storage id
  std::vector<size_t> forward_workspace, backward_workspace;  // offset in scratch, by node - begin
  size_t saved_bytes = 0;                                     // of one slot
  size_t scratch_bytes = 0;
  bool repeats = false;               // passed to Graph::forward
  std::vector<Recompute> recomputes;  // in the graph's order
  std::vector<int> inputs, outputs;   // storages that cross the stage's borders in forward
  std::vector<int> input_grads, output_grads;
};

enum class Passes : uint8_t { both, recompute, forward };

Layout plan_stage(const Graph&, Kernels&, int begin, int end, Passes = Passes::both);

// A run's memory in bytes, as printed by --plan and allocated afterwards.
struct MemoryPlan {
  size_t weights, gradients, optimizer, ema, compute_weights, activations, scratch, batches;
  // On rank 0's host: two checkpoints waiting to be written.
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

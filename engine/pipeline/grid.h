// Maps processes to parts of the model. A run of stages x replicas processes has `replicas` copies
// of the model, each cut into `stages`. The replicas of a stage have neighbouring ranks: gradients
// are then summed within a node where possible, and only activations, which are smaller, cross
// between nodes.
#pragma once
#include <vector>

namespace bv {

struct Grid {
  int stages = 1, replicas = 1;
  int stage = 0, replica = 0;  // of this process

  int rank_of(int of_stage, int of_replica) const { return of_stage * replicas + of_replica; }
  int rank() const { return rank_of(stage, replica); }
  bool first() const { return stage == 0; }
  bool last() const { return stage == stages - 1; }
  std::vector<int> pipeline_group() const;  // ranks of this replica, by stage
  std::vector<int> data_group() const;      // ranks of this stage, by replica
};

// Throws UserError if `world` is not a multiple of `stages`.
Grid grid_of(int rank, int world, int stages);

}  // namespace bv

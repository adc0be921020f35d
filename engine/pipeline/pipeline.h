// The pipeline given by --pipeline, --chunks, --partition and --micro-batches, and its expected
// bubble.
#pragma once
#include <string>
#include <vector>

#include "engine/options/options.h"
#include "engine/pipeline/grid.h"
#include "engine/pipeline/partition.h"
#include "engine/pipeline/tasks.h"

namespace bv {

struct Pipeline {
  PipelineShape shape;
  int replicas = 1;
  int micro_batch = 0;           // images
  std::vector<BlockCost> parts;  // indexed by shape.part_of(stage, chunk)
  std::vector<int> blocks;       // number in each part
  Partition partition;           // as requested
  double bubble = 0;             // computed fraction of a step, averaged over the stages

  std::vector<Slice> slices() const;  // nodes of each part
};

// One part without --pipeline. Throws UserError if the model can't be cut as requested.
Pipeline cut_model(const Options&, int replicas, const Graph&, Kernels&);

// "4 stages x 2 replicas, 8 micro-batches of 2, cost split 6,6,6,6, bubble 27%"; empty for one
// part.
std::string describe(const Pipeline&);

}  // namespace bv

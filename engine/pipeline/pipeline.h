// A model cut into a pipeline's parts by --pipeline, --chunks, --partition and --micro-batches; and
// the expected bubble.
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
  std::vector<BlockCost> parts;  // part shape.part_of(stage, chunk)
  std::vector<int> blocks;       // of each part
  Partition partition;           // as it was asked for
  double bubble = 0;             // of a step, on average over the stages, as computed

  std::vector<Slice> slices() const;  // nodes of each part
};

// Without --pipeline, one part. Throws UserError where the model can't be cut so.
Pipeline cut_model(const Options&, int replicas, const Graph&, Kernels&);

// "4 stages x 2 replicas, 8 micro-batches of 2, cost split 6,6,6,6, bubble 27%"; empty without one.
std::string describe(const Pipeline&);

}  // namespace bv

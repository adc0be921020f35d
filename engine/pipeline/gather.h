// Gathers the stages' tensors by name for a checkpoint, as if one process had the whole model.
#pragma once
#include <functional>
#include <string>

#include "engine/files/safetensors.h"
#include "engine/pipeline/pipelined_model.h"

namespace bv {

using TensorsOf = std::function<Tensors(const Graph&)>;

struct GatherPath {
  Backend& backend;
  Communicator& stages;  // the pipeline's processes, by stage
  const PipelinePlan& plan;
  const Graph& graph;
  float* memory;  // device memory, as large as this stage's arena
};

// Returns the tensors of all stages on the first stage, none on other stages. own: this stage's.
// empty: makes zeros in the shapes of the parameters that a graph owns. Waits for the device.
Tensors gather_stages(Tensors own, const GatherPath&, const TensorsOf& empty);

}  // namespace bv

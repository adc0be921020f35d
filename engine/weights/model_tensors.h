// The tensors that a model's weights file has.
#pragma once
#include <vector>

#include "engine/files/names/weight_names.h"
#include "engine/options/model_config.h"
#include "models/graph/graph.h"

namespace bv {

// Names and shapes of the tensors in a weights file of this graph's model.
std::vector<ParameterShape> parameter_shapes(const Graph&);

struct ModelSizes {
  int image_size = 0, patch_size = 0;  // 0: the model's own
  int classes = 1000;
  int representation_size = 0;
};
// The same without a run. Throws UserError if the model can't have these sizes.
std::vector<ParameterShape> parameter_shapes(const ModelConfig&, const ModelSizes&);

}  // namespace bv

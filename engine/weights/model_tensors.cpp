#include "engine/weights/model_tensors.h"

#include <stdexcept>

#include "base/error.h"
#include "models/family.h"

namespace bv {

std::vector<ParameterShape> parameter_shapes(const Graph& graph) {
  std::vector<ParameterShape> shapes;
  for (const auto* infos : {&graph.parameters(), &graph.buffers()})
    for (const ParameterInfo& p : *infos) shapes.push_back({p.name, p.shape});
  return shapes;
}

std::vector<ParameterShape> parameter_shapes(const ModelConfig& model,
                                             const ModelSizes& sizes) try {
  const int pixels = sizes.image_size ? sizes.image_size : model.image_size,
            patch = sizes.patch_size ? sizes.patch_size : model.patch_size;
  if (model.family->patches && pixels % patch != 0)
    throw UserError(model.name + ": " + std::to_string(pixels) +
                    " pixels are no whole patches of " + std::to_string(patch));
  const GraphOptions options = {.classes = sizes.classes,
                                .representation_size = sizes.representation_size};
  model.family->check(model.sizes, options, model.name, pixels);
  const InputShape input{
      .B = 2, .height = pixels, .width = pixels, .size = pixels, .patch = patch ? patch : 1};
  return parameter_shapes(model.family->build(model.sizes, options, input, DType::fp32));
} catch (const std::invalid_argument& e) {
  throw UserError(model.name + ": " + e.what());
}

}  // namespace bv

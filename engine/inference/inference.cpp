#include "engine/inference/inference.h"

namespace bv {

Inference::Inference(Backend& backend, Communicator* communicator, const Graph& graph, int batch,
                     int side)
    : backend_(&backend),
      parameters_(backend, graph),
      feed_(backend,
            {.batch = batch, .height = side, .width = side, .layers = 0, .params_in_flight = 1}),
      model_(backend, graph, Passes::forward),
      evaluator_(backend, communicator, model_, feed_, graph, {.batch = batch}) {}

size_t Inference::bytes() const {
  return parameters_.weight_bytes() + parameters_.compute_weights_bytes() +
         parameters_.buffer_bytes() + feed_.bytes() + model_.scratch_bytes() + Evaluator::bytes;
}

void Inference::allocate() {
  parameters_.allocate();
  feed_.allocate();
  scratch_ = DeviceMemory(*backend_, model_.scratch_bytes());
  model_.use(nullptr, scratch_.data());  // nothing is saved without a backward pass
  evaluator_.allocate();
  backend_->synchronize(nullptr);
}

}  // namespace bv

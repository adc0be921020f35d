#include "engine/inference/inference.h"

#include <utility>

namespace bv {

Inference::Inference(Backend& backend, Communicator* communicator, const Graph& graph, int batch,
                     int side)
    : backend_(&backend),
      communicator_(communicator),
      parameters_(backend, graph),
      feed_(backend,
            {.batch = batch, .height = side, .width = side, .layers = 0, .params_in_flight = 1}),
      stage_(backend, graph, 0, static_cast<int>(graph.nodes().size()), 1, Passes::forward),
      outputs_(backend, graph) {}

size_t Inference::bytes() const {
  return parameters_.weight_bytes() + parameters_.compute_weights_bytes() +
         parameters_.buffer_bytes() + feed_.bytes() + stage_.scratch_bytes() + DeviceSums::bytes;
}

void Inference::allocate() {
  parameters_.allocate();
  feed_.allocate();
  stage_.allocate();
  sums_.allocate(*backend_);
  context_.weights = parameters_.weights();
  context_.compute_weights = parameters_.compute_weights();
  context_.buffers = parameters_.buffers();
  context_.sums = sums_.data();
  context_.training = false;
  feed_.bind(context_, 0);
  backend_->synchronize(nullptr);
}

void Inference::begin(Outputs::Receive receive) {
  sums_.zero(*backend_);
  if (receive) outputs_.begin(std::move(receive));
}

void Inference::run(const Batch& batch) {
  feed_.upload(batch);
  if (!forward_) forward_ = backend_->recording([this] { stage_.forward(context_, 0); });
  forward_->replay();
  outputs_.add(batch, stage_);
}

EvaluationSums Inference::end() {
  outputs_.finish();
  return sums_.read(*backend_, communicator_);
}

}  // namespace bv

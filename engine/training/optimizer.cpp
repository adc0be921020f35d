#include "engine/training/optimizer.h"

namespace bv {

Optimizer::Optimizer(Backend& backend, const Parameters& parameters,
                     const OptimizerOptions& options, const LossScaling& scaling)
    : backend_(&backend),
      parameters_(&parameters),
      options_(options),
      scaling_(scaling),
      decay_bytes_(align(parameters.graph().arena_count() / OptimizerUpdate::decay_chunk)),
      workspace_bytes_(align(backend.kernels().workspace_bytes(
          GradientNorm{.count = parameters.graph().arena_count()}))) {}

void Optimizer::allocate() {
  memory_ = zeroed_memory(*backend_, bytes());
  host_ = host_memory(*backend_, sizeof(HostBlock));
  const auto flags = decay_flags(parameters_->graph(), options_.decay_all);
  backend_->to_device(memory_.data() + state_bytes, flags.data(), flags.size(), nullptr);
  set_state({.loss_scale = 1});
}

UpdateState Optimizer::state() const {
  UpdateState state;
  backend_->to_host(&state, device_state(), sizeof state, nullptr);
  backend_->synchronize(nullptr);
  return state;
}

void Optimizer::set_state(const UpdateState& state) {
  backend_->to_device(device_state(), &state, sizeof state, nullptr);
  backend_->synchronize(nullptr);
}

void Optimizer::run(const StepParams* params) const {
  const Graph& graph = parameters_->graph();
  const size_t count = graph.arena_count();
  char* decay = memory_.data() + state_bytes;
  Kernels& kernels = backend_->kernels();
  kernels.run(GradientNorm{.state = device_state(),
                           .workspace = decay + decay_bytes_,
                           .grad = parameters_->grads(),
                           .params = params,
                           .count = count},
              nullptr);
  kernels.run(
      OptimizerUpdate{.weight = parameters_->weights(),
                      .compute_weights =
                          graph.dtype() == DType::fp32 ? nullptr : parameters_->compute_weights(),
                      .m = parameters_->m(),
                      .v = parameters_->v(),
                      .state = device_state(),
                      .grad = parameters_->grads(),
                      .decay = reinterpret_cast<const uint8_t*>(decay),
                      .params = params,
                      .count = count,
                      .momentum = options_.momentum,
                      .beta1 = options_.beta1,
                      .beta2 = options_.beta2,
                      .eps = options_.eps,
                      .weight_decay = options_.weight_decay,
                      .clip = options_.clip,
                      .scaling = scaling_,
                      .kind = options_.kind,
                      .nesterov = options_.nesterov,
                      .dtype = graph.dtype()},
      nullptr);
  auto* host = static_cast<HostBlock*>(host_.get());
  backend_->to_host(host->tail, parameters_->grads() + count, sizeof host->tail, nullptr);
  backend_->to_host(&host->state, device_state(), sizeof host->state, nullptr);
}

UpdateResult Optimizer::result() const {
  const auto& [state, tail] = *static_cast<const HostBlock*>(host_.get());
  return {.loss_sum = tail[0],
          .count = tail[1],
          .grad_norm = state.grad_norm,
          .skipped = state.found_inf != 0,
          .skipped_in_a_row = state.skipped,
          .loss_scale = state.loss_scale,
          .stop = tail[2] > 0};
}

}  // namespace bv

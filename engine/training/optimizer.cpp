#include "engine/training/optimizer.h"

#include <cmath>

namespace bv {

Optimizer::Optimizer(Backend& backend, const Parameters& parameters, const OptimizerUpdate& update,
                     const LossScaling& scaling, bool decay_all, double layer_decay)
    : backend_(&backend),
      parameters_(&parameters),
      update_(update),
      scaling_(scaling),
      decay_all_(decay_all),
      layer_decay_(layer_decay) {
  update_.count = parameters.graph().arena_count();
  update_.dtype = parameters.graph().dtype();
  const size_t chunks = update_.count / OptimizerUpdate::decay_chunk;
  decay_bytes_ = align(chunks);
  scale_bytes_ = layer_decay == 1 ? 0 : align(chunks * sizeof(float));
  squares_bytes_ = align(parameters.graph().norm_blocks() * sizeof(double));
}

void Optimizer::allocate() {
  memory_ = zeroed_memory(*backend_, bytes());
  host_ = host_memory(*backend_, 2 * sizeof(HostBlock));
  char* decay = memory_.data() + state_bytes;
  const auto flags = decay_flags(parameters_->graph(), decay_all_);
  backend_->to_device(decay, flags.data(), flags.size(), nullptr);
  if (scale_bytes_) {
    char* scales = decay + decay_bytes_;
    const auto values = layer_scales(parameters_->graph(), layer_decay_);
    backend_->to_device(scales, values.data(), values.size() * sizeof values[0], nullptr);
    update_.lr_scale = reinterpret_cast<const float*>(scales);
    backend_->synchronize(nullptr);  // before `values` is destroyed
  }
  set_state({.loss_scale = 1});
  update_.weight = parameters_->weights();
  if (update_.dtype != DType::fp32) update_.compute_weights = parameters_->compute_weights();
  update_.m = parameters_->m();
  update_.v = parameters_->v();
  update_.ema = parameters_->ema();
  update_.state = device_state();
  update_.grad = parameters_->grads();
  update_.decay = reinterpret_cast<const uint8_t*>(decay);
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

// The entries of other processes' norm blocks are 0 here, as is their part of the tail, so the sums
// over the stages have the same bits as in a single process.
void Optimizer::measure(const StepParams* params, DType dtype, const Channel* stages) {
  const Graph& graph = parameters_->graph();
  auto* const sums = reinterpret_cast<double*>(memory_.data() + bytes() - squares_bytes_);
  if (stages) backend_->zero(sums, graph.norm_blocks() * sizeof(double), nullptr);
  for (const Segment& own : graph.segments())
    backend_->kernels().run(GradientSquares{.sums = sums,
                                            .grad = update_.grad + own.begin,
                                            .count = own.end - own.begin,
                                            .first = own.norm_block},
                            nullptr);
  if (stages)
    traced(trace_, nullptr, {Work::all_reduce}, [&] {
      const Stream stream = stages->fork();
      stages->communicator().all_reduce(sums, graph.norm_blocks(), stream);
      stages->communicator().all_reduce(parameters_->grads() + update_.count, Parameters::tail,
                                        stream);
      stages->join();
    });
  backend_->kernels().run(GradientNorm{.state = device_state(),
                                       .sums = sums,
                                       .params = params,
                                       .norm_blocks = static_cast<int>(graph.norm_blocks()),
                                       .scaling = dtype == DType::fp16 ? scaling_ : LossScaling{}},
                          nullptr);
}

void Optimizer::run(const StepParams* params, DType dtype, const Channel* stages) {
  update_.params = params;
  measure(params, dtype, stages);
  backend_->kernels().run(update_, nullptr);
}

void Optimizer::send_result(int turn) const {
  HostBlock& to = host(turn);
  backend_->to_host(to.tail, update_.grad + update_.count, sizeof to.tail, nullptr);
  backend_->to_host(&to.state, device_state(), sizeof to.state, nullptr);
}

UpdateResult Optimizer::result(int turn) const {
  const auto& [state, tail] = host(turn);
  return {.loss_sum = tail[0],
          .count = tail[1],
          .top1 = tail[3],
          .grad_norm = state.grad_norm,
          .skipped = state.found_inf != 0,
          .skipped_in_a_row = state.skipped,
          .loss_scale = state.loss_scale,
          .stop = tail[2] >= 1,
          .save = tail[2] != std::floor(tail[2])};
}

}  // namespace bv

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
  const size_t chunks = parameters.graph().arena_count() / OptimizerUpdate::decay_chunk;
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
  // Whole weights, parts of which other processes update, are rounded once all parts have arrived
  // (GradientSync::share_weights).
  const bool rounds = parameters_->keeps_all() || !parameters_->keeps_all_weights();
  update_.dtype = rounds ? parameters_->graph().dtype() : DType::fp32;
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

// The entries of other processes' norm blocks are 0 here, as are other stages' parts of the tail,
// so the sums over the processes have the same bits as in a single process.
void Optimizer::measure(const StepParams* params, DType dtype, const Parts& parts) {
  const Graph& graph = parameters_->graph();
  auto* const sums = reinterpret_cast<double*>(memory_.data() + bytes() - squares_bytes_);
  if (parts.replicas || parts.stages)
    backend_->zero(sums, graph.norm_blocks() * sizeof(double), nullptr);
  for (const Segment& own : parameters_->kept())
    backend_->kernels().run(GradientSquares{.sums = sums,
                                            .grad = update_.grad + own.begin,
                                            .count = own.end - own.begin,
                                            .first = own.norm_block},
                            nullptr);
  for (const Channel* const processes : {parts.replicas, parts.stages})
    if (processes)
      traced(trace_, nullptr, {Work::all_reduce}, [&] {
        Communicator& communicator = processes->communicator();
        const Stream stream = processes->fork();
        communicator.all_reduce(sums, graph.norm_blocks(), stream);
        if (processes == parts.stages)
          communicator.all_reduce(parameters_->grads() + graph.arena_count(), Parameters::tail,
                                  stream);
        processes->join();
      });
  backend_->kernels().run(GradientNorm{.state = device_state(),
                                       .sums = sums,
                                       .params = params,
                                       .norm_blocks = static_cast<int>(graph.norm_blocks()),
                                       .scaling = dtype == DType::fp16 ? scaling_ : LossScaling{}},
                          nullptr);
}

// packed: offset of the segment's moments and average, and of its weights if only parts are kept.
void Optimizer::update(const Segment& own, size_t packed) {
  const auto from = [](auto* arena, size_t element) { return arena ? arena + element : nullptr; };
  OptimizerUpdate part = update_;
  part.count = own.end - own.begin;
  part.weight += parameters_->keeps_all_weights() ? own.begin : packed;
  part.grad += own.begin;
  if (part.compute_weights)
    part.compute_weights =
        static_cast<char*>(part.compute_weights) + own.begin * size_of(part.dtype);
  part.m = from(part.m, packed);
  part.v = from(part.v, packed);
  part.ema = from(part.ema, packed);
  part.decay += own.begin / OptimizerUpdate::decay_chunk;
  part.lr_scale = from(part.lr_scale, own.begin / OptimizerUpdate::decay_chunk);
  backend_->kernels().run(part, nullptr);
}

void Optimizer::run(const StepParams* params, DType dtype, const Parts& parts) {
  update_.params = params;
  measure(params, dtype, parts);
  size_t packed = 0;
  for (const Segment& own : parameters_->kept()) {
    update(own, packed);
    packed += own.end - own.begin;
  }
}

void Optimizer::send_result(int turn) const {
  HostBlock& to = host(turn);
  backend_->to_host(to.tail, update_.grad + parameters_->graph().arena_count(), sizeof to.tail,
                    nullptr);
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

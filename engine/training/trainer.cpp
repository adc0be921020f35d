#include "engine/training/trainer.h"

#include "engine/training/memory.h"

namespace bv {

Trainer::Trainer(Backend& backend, Communicator* communicator, const Graph& graph,
                 const TrainerOptions& o)
    : backend_(&backend),
      communicator_(communicator && communicator->size() > 1 ? communicator : nullptr),
      options_(o),
      parameters_(backend, graph, o.optimizer.needs()),
      feed_(backend, {.batch = o.local_batch,
                      .height = o.height,
                      .width = o.width,
                      // Those of an update and its micro-steps, twice.
                      .params_in_flight = 2 * (o.accumulate + 1)}),
      optimizer_(backend, parameters_, o.optimizer, o.scaling),
      sync_(communicator_ ? std::make_unique<GradientSync>(backend, *communicator_, parameters_,
                                                           o.bucket_bytes, o.sync_batchnorm)
                          : nullptr),
      model_(backend, graph, optimizer_, sync_.get(), o.recompute),
      plan_{.weights = parameters_.weight_bytes() + parameters_.buffer_bytes(),
            .gradients = parameters_.gradient_bytes(),
            .optimizer = parameters_.optimizer_bytes(),
            .compute_weights = parameters_.compute_weights_bytes(),
            .activations = model_.stage().saved_bytes(),
            .scratch = model_.stage().scratch_bytes(),
            .batches = feed_.bytes() + optimizer_.bytes() + align(sums_bytes)},
      updated_(backend.create_event()) {}

void Trainer::allocate() {
  parameters_.allocate();
  feed_.allocate();
  optimizer_.allocate();
  sums_ = zeroed_memory(*backend_, align(sums_bytes));
  Context context;
  context.weights = parameters_.weights();
  context.compute_weights = parameters_.compute_weights();
  context.grads = parameters_.grads();
  context.buffers = parameters_.buffers();
  context.state = optimizer_.device_state();
  if (sync_) context.peers = sync_->peers();
  feed_.bind(context);
  model_.allocate(context);
  backend_->synchronize(nullptr);
}

double Trainer::full_update() const {
  const int replicas = communicator_ ? communicator_->size() : 1;
  return double(options_.local_batch) * options_.accumulate * replicas;
}

void Trainer::micro_step(const Batch& batch, const MicroStep& step) {
  params_ = {.seed = options_.seed,
             .epoch = static_cast<uint32_t>(step.epoch),
             .position = batch.position,
             .lr = 0,
             .grad_scale = static_cast<float>(1 / full_update()),
             .divisor = 1,
             .count = static_cast<float>(batch.count),
             .stop = step.stop ? 1.0f : 0.0f};
  feed_.set_params(params_);
  feed_.upload(batch);
  model_.micro_step(step.first, step.last);
}

void Trainer::start_update(double lr, int64_t images) {
  params_.lr = static_cast<float>(lr);
  params_.divisor = static_cast<float>(double(images) / full_update());
  feed_.set_params(params_);
  model_.update();
  backend_->record(updated_, nullptr);
}

UpdateResult Trainer::finish_update() {
  backend_->host_wait(updated_);
  return optimizer_.result();
}

void Trainer::begin_evaluation() { backend_->zero(sums_.data(), sums_bytes, nullptr); }

void Trainer::evaluate(const Batch& batch) {
  feed_.upload(batch);
  model_.evaluate(sums_.data<double>());
}

EvaluationSums Trainer::end_evaluation() {
  if (communicator_) communicator_->all_reduce(sums_.data<double>(), 4, nullptr);
  double host[4];
  backend_->to_host(host, sums_.data(), sizeof host, nullptr);
  backend_->synchronize(nullptr);
  return {.loss = host[0], .count = host[1], .top1 = host[2], .top5 = host[3]};
}

}  // namespace bv

#include "engine/training/trainer.h"

#include <algorithm>

namespace bv {

Trainer::Trainer(Backend& backend, Communicator* communicator, const Graph& graph,
                 const TrainerOptions& o)
    : backend_(&backend),
      graph_(&graph),
      communicator_(communicator && communicator->size() > 1 ? communicator : nullptr),
      options_(o),
      parameters_(backend, graph,
                  o.optimizer.kind != OptimizerKind::sgd ? 2
                  : o.optimizer.momentum != 0            ? 1
                                                         : 0,
                  o.optimizer.ema_rate > 0),
      feed_(backend, {.batch = o.local_batch,
                      .height = o.height,
                      .width = o.width,
                      .layers = o.augment_layers,
                      .mixing = o.mixing,
                      // Those of an update and its micro-steps, twice.
                      .params_in_flight = 2 * (o.accumulate + 1)}),
      optimizer_(backend, parameters_, o.optimizer, o.decay_all, o.layer_decay),
      sync_(communicator_
                ? std::make_unique<GradientSync>(backend, *communicator_, parameters_, o.sync)
                : nullptr),
      stage_(backend, graph, 0, static_cast<int>(graph.nodes().size()), 1,
             o.recompute ? Passes::recompute : Passes::both),
      plan_{.weights = parameters_.weight_bytes() + parameters_.buffer_bytes(),
            .gradients = parameters_.gradient_bytes(),
            .optimizer = parameters_.optimizer_bytes(),
            .ema = parameters_.ema_bytes(),
            .compute_weights = parameters_.compute_weights_bytes(),
            .activations = stage_.saved_bytes(),
            .scratch = stage_.scratch_bytes(),
            .batches = feed_.bytes() + optimizer_.bytes() + DeviceSums::bytes},
      outputs_(backend, graph),
      updated_(backend.create_event()) {}

void Trainer::allocate() {
  parameters_.allocate();
  feed_.allocate();
  optimizer_.allocate();
  sums_.allocate(*backend_);
  stage_.allocate();
  context_.weights = parameters_.weights();
  context_.compute_weights = parameters_.compute_weights();
  context_.grads = parameters_.grads();
  context_.buffers = parameters_.buffers();
  context_.state = optimizer_.device_state();
  if (sync_) context_.peers = sync_->peers();
  feed_.bind(context_);
  backend_->synchronize(nullptr);
}

double Trainer::full_update() const {
  const int replicas = communicator_ ? communicator_->size() : 1;
  return double(options_.local_batch) * options_.accumulate * replicas;
}

void Trainer::profile(Profile* to) {
  profile_ = to;
  stage_.profile(to);
}

void Trainer::trace(Trace* to) {
  trace_ = to;
  if (sync_) sync_->trace(to);
}

// Recorded work can't be timed node by node.
void Trainer::play(std::unique_ptr<Recording>& recording, std::function<void()> issue) {
  if (profile_) return issue();
  if (!recording) recording = backend_->recording(std::move(issue));
  recording->replay();
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
  const bool first = step.first, last = step.last;
  play(micro_steps_[size_t{first} + 2 * size_t{last}], [this, first, last] {
    Context context = context_;
    context.accumulate = !first;
    traced(trace_, nullptr, {Work::forward}, [&] { stage_.forward(context, 0); });
    traced(trace_, nullptr, {Work::backward}, [&] {
      if (!last || !sync_) return stage_.backward(context, 0);
      timed(profile_, *backend_, "exposed communication", [this] { sync_->start(); });
      stage_.backward(context, 0, [this](int node) {
        timed(profile_, *backend_, "exposed communication",
              [&] { sync_->reduce(graph_->ready_after(node)); });
      });
    });
  });
}

void Trainer::start_update(double lr, int64_t images) {
  params_.lr = static_cast<float>(lr);
  params_.divisor = static_cast<float>(double(images) / full_update());
  feed_.set_params(params_);
  timed(profile_, *backend_, "optimizer", [this] {
    play(update_, [this] {
      traced(trace_, nullptr, {Work::update}, [this] {
        if (sync_) sync_->average_buffers();
        optimizer_.run(context_.params);
      });
    });
  });
  backend_->record(updated_, nullptr);
}

UpdateResult Trainer::finish_update() {
  backend_->host_wait(updated_);
  return optimizer_.result();
}

void Trainer::begin_evaluation(bool averaged, bool each_image) {
  sums_.zero(*backend_);
  averaged_ = averaged;
  each_image_ = each_image;
  predictions_.clear();
  if (each_image)
    outputs_.begin([this](const BatchOutputs& batch) { append_predictions(batch, predictions_); });
  if (averaged_) compute_with(parameters_.ema());
}

// The 16-bit copy has room for one of them. In fp32 kernels read the arena itself.
void Trainer::compute_with(const float* weights) {
  if (graph_->dtype() == DType::fp32) return;
  backend_->kernels().run(RoundWeights{.out = parameters_.compute_weights(),
                                       .inp = weights,
                                       .count = graph_->arena_count(),
                                       .dtype = graph_->dtype()},
                          nullptr);
}

void Trainer::evaluate(const Batch& batch) {
  feed_.upload(batch);
  stage_.profile(nullptr);  // a section as a whole
  play(evaluations_[averaged_], [this] {
    Context context = context_;
    if (averaged_) {
      context.weights = parameters_.ema();
      if (graph_->dtype() == DType::fp32) context.compute_weights = parameters_.ema();
    }
    context.training = false;
    context.sums = sums_.data();
    traced(trace_, nullptr, {Work::evaluation}, [&] { stage_.forward(context, 0); });
  });
  stage_.profile(profile_);
  outputs_.add(batch, stage_);
}

EvaluationSums Trainer::end_evaluation() {
  if (averaged_) compute_with(parameters_.weights());
  averaged_ = false;
  outputs_.finish();
  if (each_image_) predictions_ = gather(std::move(predictions_), *backend_, communicator_);
  return sums_.read(*backend_, communicator_);
}

std::pair<int, int> Trainer::graph_nodes() const {
  const auto nodes = [](const auto& recording) { return recording ? recording->nodes() : 0; };
  int largest = 0;
  for (const auto& recording : micro_steps_) largest = std::max(largest, nodes(recording));
  return {largest, nodes(update_)};
}

}  // namespace bv

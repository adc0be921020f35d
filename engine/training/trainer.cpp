#include "engine/training/trainer.h"

#include <algorithm>

namespace bv {
namespace {

template <class Models>
size_t most(const Models& models, size_t (Stage::*bytes)() const) {
  size_t found = 0;
  for (const auto& model : models) found = std::max(found, (model.stage.*bytes)());
  return found;
}

}  // namespace

std::vector<Trainer::Model> Trainer::models_of(Backend& backend, const Graph& graph,
                                               const Graph* fp32, bool recompute) {
  std::vector<Model> models;
  for (const Graph* g : {&graph, fp32})
    if (g)
      models.push_back({Stage(backend, *g, 0, static_cast<int>(g->nodes().size()), 1,
                              recompute ? Passes::recompute : Passes::both)});
  return models;
}

Trainer::Trainer(Backend& backend, Communicator* communicator, const Graph& graph,
                 const TrainerOptions& o, const Graph* fp32)
    : backend_(&backend),
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
      models_(models_of(backend, graph, fp32, o.recompute)),
      now_(models_.data()),
      plan_{.weights = parameters_.weight_bytes() + parameters_.buffer_bytes(),
            .gradients = parameters_.gradient_bytes(),
            .optimizer = parameters_.optimizer_bytes(),
            .ema = parameters_.ema_bytes(),
            .compute_weights = parameters_.compute_weights_bytes(),
            .activations = most(models_, &Stage::saved_bytes),
            .scratch = most(models_, &Stage::scratch_bytes),
            .batches = feed_.bytes() + optimizer_.bytes() + DeviceSums::bytes},
      outputs_(backend, fp32 ? *fp32 : graph),
      updated_(backend.create_event()) {}

void Trainer::allocate() {
  parameters_.allocate();
  feed_.allocate();
  optimizer_.allocate();
  sums_.allocate(*backend_);
  models_[0].stage.allocate(plan_.activations, plan_.scratch);
  if (models_.size() > 1) models_[1].stage.share(models_[0].stage);
  context_.weights = parameters_.weights();
  context_.grads = parameters_.grads();
  context_.buffers = parameters_.buffers();
  context_.state = optimizer_.device_state();
  if (sync_) context_.peers = sync_->peers();
  feed_.bind(context_);
  backend_->synchronize(nullptr);
}

const Stage& Trainer::largest() const {
  const auto bytes = [](const Model& m) { return m.stage.saved_bytes() + m.stage.scratch_bytes(); };
  return std::ranges::max_element(models_, {}, bytes)->stage;
}

UpdateState Trainer::state() const {
  UpdateState state = optimizer_.state();
  if (now_ != models_.data()) {
    state.loss_scale = sixteen_bits_.loss_scale;
    state.good_steps = sixteen_bits_.good_steps;
  }
  return state;
}

void Trainer::set_state(const UpdateState& given) {
  UpdateState state = given;
  if (now_ != models_.data()) {
    sixteen_bits_ = given;
    state.loss_scale = 1;
  }
  optimizer_.set_state(state);
}

void Trainer::compute_in(DType dtype) {
  if (dtype == this->dtype()) return;
  const UpdateState kept = state();
  now_ = now_ == models_.data() ? &models_[1] : models_.data();
  set_state(kept);
}

// In fp32 kernels read the arena of the weights itself.
Context Trainer::context() const {
  Context context = context_;
  context.compute_weights =
      dtype() == DType::fp32 ? parameters_.weights() : parameters_.compute_weights();
  return context;
}

double Trainer::full_update() const {
  const int replicas = communicator_ ? communicator_->size() : 1;
  return double(options_.local_batch) * options_.accumulate * replicas;
}

void Trainer::profile(Profile* to) {
  profile_ = to;
  for (Model& model : models_) model.stage.profile(to);
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
  play(now_->micro_steps[size_t{first} + 2 * size_t{last}], [this, first, last] {
    const Stage& stage = now_->stage;
    Context context = this->context();
    context.accumulate = !first;
    traced(trace_, nullptr, {Work::forward}, [&] { stage.forward(context, 0); });
    traced(trace_, nullptr, {Work::backward}, [&] {
      if (!last || !sync_) return stage.backward(context, 0);
      timed(profile_, *backend_, "exposed communication", [this] { sync_->start(); });
      stage.backward(context, 0, [&](int node) {
        timed(profile_, *backend_, "exposed communication",
              [&] { sync_->reduce(stage.graph().ready_after(node)); });
      });
    });
  });
}

void Trainer::start_update(double lr, int64_t images) {
  params_.lr = static_cast<float>(lr);
  params_.divisor = static_cast<float>(double(images) / full_update());
  feed_.set_params(params_);
  timed(profile_, *backend_, "optimizer", [this] {
    play(now_->update, [this] {
      traced(trace_, nullptr, {Work::update}, [this] {
        if (sync_) sync_->average_buffers();
        optimizer_.run(context_.params, dtype());
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

// The 16-bit copy has room for one of them.
void Trainer::compute_with(const float* weights) {
  if (dtype() == DType::fp32) return;
  backend_->kernels().run(RoundWeights{.out = parameters_.compute_weights(),
                                       .inp = weights,
                                       .count = parameters_.graph().arena_count(),
                                       .dtype = dtype()},
                          nullptr);
}

void Trainer::evaluate(const Batch& batch) {
  feed_.upload(batch);
  Stage& stage = now_->stage;
  stage.profile(nullptr);  // a section as a whole
  play(now_->evaluations[averaged_], [this] {
    Context context = this->context();
    if (averaged_) {
      context.weights = parameters_.ema();
      if (dtype() == DType::fp32) context.compute_weights = parameters_.ema();
    }
    context.training = false;
    context.sums = sums_.data();
    traced(trace_, nullptr, {Work::evaluation}, [&] { now_->stage.forward(context, 0); });
  });
  stage.profile(profile_);
  outputs_.add(batch, stage);
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
  for (const auto& recording : now_->micro_steps) largest = std::max(largest, nodes(recording));
  return {largest, nodes(now_->update)};
}

}  // namespace bv

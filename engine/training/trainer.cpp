#include "engine/training/trainer.h"

#include <algorithm>

namespace bv {
namespace {

template <class Models>
size_t most(const Models& models, size_t (ModelPart::*bytes)() const) {
  size_t found = 0;
  for (const auto& model : models) found = std::max(found, (model.part.*bytes)());
  return found;
}

}  // namespace

std::vector<Trainer::Model> Trainer::models_of(Backend& backend, const Graph& graph,
                                               const Graph* fp32, const TrainerOptions& o) {
  std::vector<Model> models;
  for (const Graph* g : {&graph, fp32}) {
    if (!g) continue;
    models.push_back(
        {ModelPart(backend, *g, o.pipeline, o.recompute ? Passes::recompute : Passes::both)});
    models.back().evaluations.resize(static_cast<size_t>(o.pipeline.shape.micro_batches));
  }
  return models;
}

Trainer::Trainer(Backend& backend, Communicator* communicator, const Graph& graph,
                 const TrainerOptions& o, const Graph* fp32)
    : backend_(&backend),
      communicator_(communicator && communicator->size() > 1 ? communicator : nullptr),
      options_(o),
      links_(connect(backend, communicator_, o.pipeline.grid)),
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
                      .params_in_flight = 2 * o.accumulate,  // of two updates
                      .micro_batches = o.pipeline.shape.micro_batches,
                      .images = o.pipeline.grid.first(),
                      .targets = o.pipeline.grid.last()}),
      optimizer_(backend, parameters_, o.optimizer, o.decay_all, o.layer_decay),
      sync_(sync_of(backend, parameters_, links_, o.sync)),
      models_(models_of(backend, graph, fp32, o)),
      now_(models_.data()),
      plan_{.weights = parameters_.weight_bytes() + parameters_.buffer_bytes(),
            .gradients = parameters_.gradient_bytes(),
            .optimizer = parameters_.optimizer_bytes(),
            .ema = parameters_.ema_bytes(),
            .compute_weights = parameters_.compute_weights_bytes(),
            .activations = most(models_, &ModelPart::saved_bytes),
            .scratch = most(models_, &ModelPart::scratch_bytes),
            .batches = feed_.bytes() + optimizer_.bytes() + DeviceSums::bytes,
            .checkpoints = !o.pipeline.grid.first()      ? 0
                           : o.pipeline.grid.stages == 1 ? 2 * parameters_.copy_bytes()
                                                         : 2 * parameters_.model_bytes()},
      outputs_(backend, fp32 ? *fp32 : graph),
      params_(static_cast<size_t>(o.pipeline.shape.micro_batches)) {
  for (Event& event : updated_) event = backend.create_event();
}

Trainer::Links Trainer::connect(Backend& backend, Communicator* all, const Grid& grid) {
  Links links;
  if (all && grid.stages == 1) links.replicas = all;
  if (!all || grid.stages == 1) return links;
  links.stages = std::make_unique<StageLinks>(backend, *all, grid);
  links.own_replicas = all->group(grid.data_group());
  if (grid.replicas > 1) links.replicas = links.own_replicas.get();
  return links;
}

std::unique_ptr<GradientSync> Trainer::sync_of(Backend& backend, const Parameters& parameters,
                                               const Links& links, SyncOptions options) {
  if (!links.replicas) return nullptr;
  if (links.stages) options.first_stream = StageLinks::streams;
  return std::make_unique<GradientSync>(backend, *links.replicas, parameters, options);
}

void Trainer::allocate() {
  parameters_.allocate();
  feed_.allocate();
  optimizer_.allocate();
  sums_.allocate(*backend_);
  models_[0].part.allocate(plan_.activations, plan_.scratch);
  if (models_.size() > 1) models_[1].part.share(models_[0].part);
  context_.weights = parameters_.weights();
  context_.grads = parameters_.grads();
  context_.buffers = parameters_.buffers();
  context_.state = optimizer_.device_state();
  if (sync_) context_.peers = sync_->peers();
  backend_->synchronize(nullptr);
}

const ModelPart& Trainer::largest() const {
  const auto bytes = [](const Model& m) { return m.part.saved_bytes() + m.part.scratch_bytes(); };
  return std::ranges::max_element(models_, {}, bytes)->part;
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

double Trainer::full_update() const {
  const int replicas = links_.replicas ? links_.replicas->size() : 1;
  return double(options_.local_batch) * options_.accumulate * replicas;
}

void Trainer::profile(Profile* to) {
  profile_ = to;
  profile_parts(to);
}

void Trainer::trace(Trace* to) {
  trace_ = to;
  for (Model& model : models_) model.part.trace(to);
  optimizer_.trace(to);
  if (sync_) sync_->trace(to);
  if (links_.stages) links_.stages->trace(to);
}

void Trainer::profile_parts(Profile* to) {
  for (Model& model : models_) model.part.profile(to);
  if (links_.stages) links_.stages->profile(to);
}

// Recorded work can't be timed node by node.
void Trainer::play(std::unique_ptr<Recording>& recording, std::function<void()> issue) {
  if (profile_) return issue();
  if (!recording) recording = backend_->recording(std::move(issue));
  recording->replay();
}

// The count is the tail's, which the stage with the loss fills in.
StepParams Trainer::params_of(const Batch& batch, const MicroStep& step, int micro) const {
  const int images = options_.local_batch / options_.pipeline.shape.micro_batches,
            before = micro * images;
  const int count = now_->part.computes_loss() ? std::clamp(batch.count - before, 0, images) : 0;
  return {.seed = options_.seed,
          .epoch = static_cast<uint32_t>(step.epoch),
          .position = batch.position + static_cast<uint32_t>(before),
          .lr = 0,
          .grad_scale = static_cast<float>(1 / full_update()),
          .divisor = 1,
          .count = static_cast<float>(count),
          .stop = step.stop ? 1.0f : 0.0f};
}

// In fp32 kernels read the arena of the weights itself.
Context Trainer::context_of(int micro) const {
  Context context = context_;
  context.compute_weights =
      dtype() == DType::fp32 ? parameters_.weights() : parameters_.compute_weights();
  feed_.bind(context, micro);
  return context;
}

void Trainer::send_targets() const {
  const Grid& grid = options_.pipeline.grid;
  if (!links_.stages || !(grid.first() || grid.last())) return;
  const std::span<char> targets = feed_.targets();
  const Transfer transfer{.data = targets.data(),
                          .bytes = targets.size(),
                          .peer = grid.first() ? grid.stages - 1 : 0,
                          .send = grid.first()};
  const size_t number = links_.stages->exchange({&transfer, 1}, links_.stages->channel_of(true));
  if (grid.last()) links_.stages->wait(number);
}

void Trainer::micro_step(const Batch& batch, const MicroStep& step) {
  for (size_t i = 0; i < params_.size(); ++i)
    params_[i] = params_of(batch, step, static_cast<int>(i));
  feed_.upload(batch);
  first_ = step.first;
  if (step.last) return;
  feed_.set_params(params_);
  play(now_->micro_steps[first_], [this, first = first_] { compute_gradients(first, false); });
}

void Trainer::start_update(double lr, int64_t images) {
  for (StepParams& params : params_) {
    params.lr = static_cast<float>(lr);
    params.divisor = static_cast<float>(double(images) / full_update());
  }
  feed_.set_params(params_);
  play(now_->updates[first_], [this, first = first_] {
    compute_gradients(first, true);
    timed(profile_, *backend_, "optimizer", [this] { update(); });
  });
  const auto turn = static_cast<int>(started_++ % 2);
  optimizer_.send_result(turn);
  backend_->record(updated_[static_cast<size_t>(turn)], nullptr);
}

UpdateResult Trainer::finish_update() {
  const auto turn = static_cast<int>(finished_++ % 2);
  backend_->host_wait(updated_[static_cast<size_t>(turn)]);
  return optimizer_.result(turn);
}

void Trainer::compute_gradients(bool first, bool last) {
  const ModelPart& part = now_->part;
  send_targets();
  // The stages without a loss have their part of the tail all the same: who is asked to stop.
  if (!part.computes_loss())
    backend_->kernels().run(GradientTail{.tail = context_.grads + part.graph().arena_count(),
                                         .params = context_of(0).params,
                                         .B = 1,
                                         .accumulate = !first},
                            nullptr);
  ModelPart::Step work{.context = [this, first](int micro) {
    Context context = context_of(micro);
    context.accumulate = !first || micro > 0;
    return context;
  }};
  const auto communicate = [this](const auto& issue) {
    timed(profile_, *backend_, "exposed communication", issue);
  };
  if (last && sync_) {
    work.last_forward = [&] { communicate([&] { sync_->start(); }); };
    work.final = [&](int node) {
      communicate([&] { sync_->reduce(part.graph().ready_after(node)); });
    };
  }
  part.train(work, links_.stages.get());
}

void Trainer::update() {
  traced(trace_, nullptr, {Work::update}, [this] {
    if (sync_) sync_->average_buffers();
    optimizer_.run(context_of(0).params, dtype(),
                   links_.stages ? &links_.stages->channel() : nullptr);
  });
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
  const ModelPart& part = now_->part;
  profile_parts(nullptr);  // a section as a whole
  const int micro_batches = options_.pipeline.shape.micro_batches,
            images = options_.local_batch / micro_batches;
  for (int micro = 0; micro < micro_batches; ++micro) {
    play(now_->evaluations[static_cast<size_t>(micro)][averaged_], [this, micro] {
      if (micro == 0) send_targets();
      Context context = context_of(micro);
      if (averaged_) {
        context.weights = parameters_.ema();
        if (dtype() == DType::fp32) context.compute_weights = parameters_.ema();
      }
      context.training = false;
      if (now_->part.computes_loss()) context.sums = sums_.data();
      traced(trace_, nullptr, {Work::evaluation, 0, -1, micro},
             [&] { now_->part.evaluate(context, micro, links_.stages.get()); });
    });
    const int before = micro * images;
    Batch rows = batch;
    rows.position += static_cast<uint32_t>(before);
    rows.count = std::clamp(batch.count - before, 0, images);
    if (rows.labels) rows.labels += before;
    if (part.computes_loss())
      outputs_.add(rows, part.last_chunk(), rows.labels ? nullptr : context_of(micro).labels);
  }
  profile_parts(profile_);
}

void Trainer::abandon_evaluation() {
  if (averaged_) compute_with(parameters_.weights());
  averaged_ = false;
  outputs_.finish();
}

EvaluationSums Trainer::end_evaluation() {
  abandon_evaluation();
  if (each_image_) predictions_ = gather(std::move(predictions_), *backend_, communicator_);
  return sums_.read(*backend_, communicator_);
}

Trainer::Saved Trainer::saved() {
  const Grid& grid = options_.pipeline.grid;
  const bool saves =
      grid.stages > 1 ? grid.replica == 0 : !communicator_ || communicator_->rank() == 0;
  if (!saves) return {};
  Saved own{parameters_.get_weights(), parameters_.get_ema(), parameters_.get_moments()};
  if (!links_.stages) return own;
  const GatherPath path{*backend_, links_.stages->stages(), options_.pipeline, parameters_.graph(),
                        parameters_.grads()};
  const auto moments = [this](const Graph& part) { return parameters_.empty_moments(part); };
  Saved all{.weights = gather_stages(std::move(own.weights), path, Parameters::empty_weights),
            .moments = gather_stages(std::move(own.moments), path, moments)};
  if (parameters_.ema())
    all.ema = gather_stages(std::move(own.ema), path, Parameters::empty_weights);
  // Backward writes the parameters' gradients alone, and the norm counts what is between them.
  backend_->zero(parameters_.grads(), parameters_.gradient_bytes(), nullptr);
  return all;
}

std::string Trainer::first_not_finite() const {
  const int own = parameters_.first_not_finite();
  int first = own;
  for (int stage = options_.pipeline.grid.stages; links_.stages && stage-- > 0;) {
    const bool here = stage == options_.pipeline.grid.stage;
    const auto theirs = static_cast<int>(links_.stages->stages().all_reduce_scalar(here ? own : 0));
    if (theirs >= 0 && (first < 0 || theirs < first)) first = theirs;
  }
  return first < 0 ? "" : parameters_.graph().parameters()[static_cast<size_t>(first)].name;
}

int Trainer::graph_nodes() const {
  int largest = 0;
  for (const auto& step : now_->updates) largest = std::max(largest, step ? step->nodes() : 0);
  return largest;
}

}  // namespace bv

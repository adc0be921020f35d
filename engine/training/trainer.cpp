#include "engine/training/trainer.h"

#include <algorithm>

#include "engine/model/whole_model.h"
#include "engine/pipeline/pipelined_model.h"

namespace bv {
namespace {

int moments_of(const OptimizerUpdate& o) {
  if (o.kind != OptimizerKind::sgd) return 2;
  return o.momentum != 0 ? 1 : 0;
}

}  // namespace

Trainer::Trainer(Backend& backend, Communicator* communicator, const Graph& graph,
                 const TrainerOptions& o, const Graph* fp32)
    : backend_(&backend),
      communicator_(communicator && communicator->size() > 1 ? communicator : nullptr),
      pipeline_(o.pipeline),
      links_(connect(backend, communicator_, o.pipeline.grid)),
      parameters_(backend, graph, moments_of(o.optimizer), o.optimizer.ema_rate > 0,
                  std::max(o.sync.shards, 1),
                  kept_segments(graph, o.sync, links_.replica, links_.count),
                  o.sync.zero && links_.count > 1 && !fp32),
      feed_(backend, {.batch = o.local_batch,
                      .height = o.height,
                      .width = o.width,
                      .layers = o.augment_layers,
                      .mixing = o.mixing,
                      .params_in_flight = 2 * o.accumulate,  // enough for two updates
                      .micro_batches = o.pipeline.shape.micro_batches,
                      .images = o.pipeline.grid.first(),
                      .targets = o.pipeline.grid.last()}),
      optimizer_(backend, parameters_, o.optimizer, o.scaling, o.decay_all, o.layer_decay),
      sync_(sync_of(backend, parameters_, links_, o.sync)),
      model_(make_model(graph, fp32, o)),
      plan_{.weights = parameters_.weight_bytes() + parameters_.buffer_bytes(),
            .gradients =
                parameters_.gradient_bytes() + GradientSync::bytes(graph, o.sync, links_.count),
            .optimizer = parameters_.optimizer_bytes(),
            .ema = parameters_.ema_bytes(),
            .compute_weights = parameters_.compute_weights_bytes(),
            .activations = model_->saved_bytes(),
            .scratch = model_->scratch_bytes(),
            .batches = feed_.bytes() + optimizer_.bytes() + Evaluator::bytes,
            .checkpoints = !o.pipeline.grid.first()      ? 0
                           : o.pipeline.grid.stages == 1 ? 2 * parameters_.copy_bytes()
                                                         : 2 * parameters_.model_bytes()},
      step_({backend, parameters_, feed_, *model_, optimizer_, sync_.get()},
            {.batch = o.local_batch,
             .micro_batches = o.pipeline.shape.micro_batches,
             .accumulate = o.accumulate,
             .replicas = links_.replicas ? links_.replicas->size() : 1,
             .seed = o.seed}),
      evaluator_(backend, communicator_, *model_, feed_, fp32 ? *fp32 : graph,
                 {.batch = o.local_batch, .micro_batches = o.pipeline.shape.micro_batches}) {}

Trainer::Links Trainer::connect(Backend& backend, Communicator* all, const Grid& grid) {
  Links links{.replica = grid.replica, .count = grid.replicas};
  if (!all) return links;
  if (grid.stages == 1) {
    links.replicas = all;
    links.replica = all->rank(), links.count = all->size();
    return links;
  }
  links.stages = std::make_unique<StageLinks>(backend, *all, grid);
  links.own_replicas = all->group(grid.data_group());
  if (grid.replicas > 1) links.replicas = links.own_replicas.get();
  return links;
}

std::unique_ptr<GradientSync> Trainer::sync_of(Backend& backend, const Parameters& parameters,
                                               const Links& links, SyncOptions options) {
  if (!links.replicas && options.shards <= 1) return nullptr;
  if (links.stages) options.first_stream = StageLinks::streams;
  return std::make_unique<GradientSync>(backend, links.replicas, parameters, options);
}

std::unique_ptr<Model> Trainer::make_model(const Graph& graph, const Graph* fp32,
                                           const TrainerOptions& o) {
  if (fp32) {
    auto both = std::make_unique<TwoPrecisions>(make_model(graph, nullptr, o),
                                                make_model(*fp32, nullptr, o));
    precisions_ = both.get();
    return both;
  }
  const Passes passes = o.recompute ? Passes::recompute : Passes::both;
  // Batch norm's statistics over all shards need all of them at once.
  const int together = o.sync.sync_batchnorm ? std::max(o.sync.shards, 1) : 1;
  if (!o.pipeline.cut()) return std::make_unique<WholeModel>(*backend_, graph, passes, together);
  return std::make_unique<PipelinedModel>(*backend_, graph, o.pipeline, passes,
                                          links_.stages.get());
}

void Trainer::allocate() {
  parameters_.allocate();
  feed_.allocate();
  optimizer_.allocate();
  if (sync_) sync_->allocate();
  evaluator_.allocate();
  saved_ = DeviceMemory(*backend_, plan_.activations);
  scratch_ = DeviceMemory(*backend_, plan_.scratch);
  model_->use(saved_.data(), scratch_.data());
  backend_->synchronize(nullptr);
}

UpdateState Trainer::state() const {
  UpdateState state = optimizer_.state();
  if (in_second_precision()) {
    state.loss_scale = sixteen_bits_.loss_scale;
    state.good_steps = sixteen_bits_.good_steps;
  }
  return state;
}

void Trainer::set_state(const UpdateState& given) {
  UpdateState state = given;
  if (in_second_precision()) {
    sixteen_bits_ = given;
    state.loss_scale = 1;
  }
  optimizer_.set_state(state);
}

void Trainer::compute_in(DType dtype) {
  if (dtype == this->dtype()) return;
  const UpdateState kept = state();
  precisions_->compute_in(dtype);
  set_state(kept);
}

void Trainer::begin_evaluation(bool averaged, bool each_image) {
  averaged_ = averaged;
  each_image_ = each_image;
  predictions_.clear();
  float* const masters = averaged_ ? compute_with(parameters_.ema()) : parameters_.weights();
  Outputs::Receive receive;
  if (each_image)
    receive = [this](const BatchOutputs& batch) { append_predictions(batch, predictions_); };
  evaluator_.begin(parameters_.context(dtype(), masters), std::move(receive));
}

// The 16-bit copy has room for either the weights or their average.
float* Trainer::compute_with(float* kept) {
  const bool all = parameters_.keeps_all_weights();
  float* const masters = all && kept == parameters_.ema() ? whole(kept) : kept;
  if (dtype() != DType::fp32) parameters_.round(masters);
  if (!all) sync_->share_weights(masters);
  return masters;
}

void Trainer::abandon_evaluation() {
  if (averaged_) compute_with(parameters_.weights());
  averaged_ = false;
  evaluator_.abandon();
}

EvaluationSums Trainer::end_evaluation() {
  abandon_evaluation();
  if (each_image_) predictions_ = gather(std::move(predictions_), *backend_, communicator_);
  return evaluator_.end();
}

void Trainer::profile(Profile* to) {
  model_->profile(to);
  step_.profile(to);
  evaluator_.profile(to);
}

void Trainer::trace(Trace* to) {
  model_->trace(to);
  step_.trace(to);
  evaluator_.trace(to);
  optimizer_.trace(to);
  if (sync_) sync_->trace(to);
}

float* Trainer::whole(float* kept) const {
  if (!in_parts()) return kept;
  parameters_.unpack(kept);
  sync_->all_gather(parameters_.grads());
  return parameters_.grads();
}

void Trainer::copy_to(const ParameterCopy& to) const {
  parameters_.copy_to(to, [this](float* kept) { return whole(kept); });
}

Trainer::Saved Trainer::saved() {
  const Grid& grid = pipeline_.grid;
  const bool saves =
      grid.stages > 1 ? grid.replica == 0 : !communicator_ || communicator_->rank() == 0;
  if (!saves) {
    if (in_parts()) {  // sends this replica's parts to the replica that saves, which needs them
      copy_to({});
      backend_->synchronize(nullptr);
    }
    return {};
  }
  const auto whole = [this](float* kept) { return this->whole(kept); };
  Saved own{parameters_.get_weights(whole), parameters_.get_ema(whole),
            parameters_.get_moments(whole)};
  if (!links_.stages) return own;
  const GatherPath path{*backend_, links_.stages->stages(), pipeline_, parameters_.graph(),
                        parameters_.grads()};
  const auto moments = [this](const Graph& part) { return parameters_.empty_moments(part); };
  Saved all{.weights = gather_stages(std::move(own.weights), path, Parameters::empty_weights),
            .moments = gather_stages(std::move(own.moments), path, moments)};
  if (parameters_.ema())
    all.ema = gather_stages(std::move(own.ema), path, Parameters::empty_weights);
  // Gathering has overwritten the gradients. Backward rewrites only the parameters' gradients, but
  // the norm includes the padding between them: zero it.
  backend_->zero(parameters_.grads(), parameters_.gradient_bytes(), nullptr);
  return all;
}

std::string Trainer::first_not_finite() const {
  int first = parameters_.first_not_finite();
  for (Communicator* const others : {in_parts() ? links_.replicas : nullptr,
                                     links_.stages ? &links_.stages->stages() : nullptr}) {
    const int own = first;
    for (int rank = 0; others && rank < others->size(); ++rank) {
      const bool here = rank == others->rank();
      const auto theirs = static_cast<int>(others->all_reduce_scalar(here ? own : 0));
      if (theirs >= 0 && (first < 0 || theirs < first)) first = theirs;
    }
  }
  return first < 0 ? "" : parameters_.graph().parameters()[static_cast<size_t>(first)].name;
}

}  // namespace bv

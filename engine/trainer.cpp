#include "engine/trainer.h"

#include <cmath>

namespace bv {
namespace {

Parameters::Needs needs(const OptimizerOptions& o) {
  const bool adam = o.kind != OptimizerKind::sgd;
  return {.first_moment = adam || o.momentum != 0, .second_moment = adam};
}

}  // namespace

Trainer::Trainer(Backend& backend, Communicator* communicator, const Graph& graph,
                 const TrainerOptions& options)
    : backend_(&backend),
      communicator_(communicator && communicator->size() > 1 ? communicator : nullptr),
      graph_(&graph),
      options_(options),
      stage_(backend, graph, 0, static_cast<int>(graph.nodes().size()), 1),
      parameters_(backend, graph, needs(options.optimizer)),
      ready_(backend.create_event()),
      reduced_(backend.create_event()) {
  size_t bytes = 0;
  const auto place = [&bytes](size_t size) {
    const size_t at = bytes;
    bytes += (size + 255) / 256 * 256;
    return at;
  };
  const auto batch = static_cast<size_t>(options.local_batch);
  at_.images =
      place(batch * static_cast<size_t>(options.height) * static_cast<size_t>(options.width) * 3);
  at_.crops = place(batch * sizeof(Crop));
  at_.labels = place(batch * sizeof(int32_t));
  at_.params = place(sizeof(StepParams));
  at_.state = place(sizeof(UpdateState));
  at_.sums = place(4 * sizeof(double));
  at_.decay = place(graph.arena_count() / OptimizerUpdate::decay_chunk);
  at_.workspace =
      place(backend.kernels().workspace_bytes(GradientNorm{.count = graph.arena_count()}));
  at_.bytes = bytes;

  plan_ = {.weights = parameters_.weight_bytes(),
           .gradients = parameters_.gradient_bytes(),
           .optimizer = parameters_.optimizer_bytes(),
           .compute_copy = parameters_.copy_bytes(),
           .activations = stage_.saved_bytes(),
           .scratch = stage_.scratch_bytes(),
           .batches = bytes};

  // Buckets end where a node's parameters end; the tail goes with the last.
  const size_t bucket = std::max<size_t>(1, options.bucket_bytes / sizeof(float));
  size_t begin = 0;
  for (size_t node = graph.nodes().size(); node-- > 0;) {
    const size_t ready = graph.ready_after(static_cast<int>(node));
    if (ready - begin < bucket || ready == graph.arena_count()) continue;
    buckets_.push_back({begin, ready});
    begin = ready;
  }
  buckets_.push_back({begin, graph.arena_count() + Parameters::tail});
}

void Trainer::allocate() {
  parameters_.allocate();
  stage_.allocate();
  small_ = DeviceMemory(*backend_, at_.bytes);
  backend_->zero(small_.data(), at_.bytes, nullptr);
  const auto flags = decay_flags(*graph_, options_.optimizer.decay_all);
  backend_->to_device(small_.data() + at_.decay, flags.data(), flags.size(), nullptr);
  backend_->synchronize(nullptr);
  set_state({.loss_scale = 1});
}

UpdateState Trainer::state() const {
  UpdateState state;
  backend_->to_host(&state, small_.data() + at_.state, sizeof state, nullptr);
  backend_->synchronize(nullptr);
  return state;
}

void Trainer::set_state(const UpdateState& state) {
  backend_->to_device(small_.data() + at_.state, &state, sizeof state, nullptr);
  backend_->synchronize(nullptr);
}

void Trainer::profile(Profile* to) {
  profile_ = to;
  stage_.profile(to);
}

Run Trainer::run() const {
  char* const small = small_.data();
  Run run;
  run.weights = parameters_.weights();
  run.copy = parameters_.copy();
  run.grads = parameters_.grads();
  run.params = reinterpret_cast<const StepParams*>(small + at_.params);
  run.state = reinterpret_cast<UpdateState*>(small + at_.state);
  run.images = reinterpret_cast<const uint8_t*>(small + at_.images);
  run.crops = reinterpret_cast<const Crop*>(small + at_.crops);
  run.labels = reinterpret_cast<const int32_t*>(small + at_.labels);
  return run;
}

void Trainer::upload(const Batch& batch) {
  const auto images = static_cast<size_t>(options_.local_batch);
  char* const small = small_.data();
  backend_->to_device(
      small + at_.images, batch.images,
      images * static_cast<size_t>(options_.height) * static_cast<size_t>(options_.width) * 3,
      nullptr);
  backend_->to_device(small + at_.crops, batch.crops, images * sizeof(Crop), nullptr);
  backend_->to_device(small + at_.labels, batch.labels, images * sizeof(int32_t), nullptr);
}

void Trainer::micro_step(const Batch& batch, const MicroStep& step) {
  const int ranks = communicator_ ? communicator_->size() : 1;
  const double full = double(options_.local_batch) * options_.accumulate * ranks;
  params_ = {.seed = options_.seed,
             .epoch = static_cast<uint32_t>(step.epoch),
             .position = batch.position,
             .lr = 0,
             .grad_scale = static_cast<float>(1 / full),
             .divisor = 1,
             .count = static_cast<float>(batch.count),
             .stop = step.stop ? 1.0f : 0.0f};
  backend_->to_device(small_.data() + at_.params, &params_, sizeof params_, nullptr);
  upload(batch);

  Run r = run();
  r.accumulate = !step.first;
  stage_.forward(r, 0);
  if (step.last && communicator_) {
    next_bucket_ = 0;
    stage_.backward(r, 0, [&](int node) { reduce_ready(graph_->ready_after(node)); });
  } else {
    stage_.backward(r, 0);
  }
}

// Starts the reduction of the buckets that are complete, beside what backward does next.
void Trainer::reduce_ready(size_t ready) {
  while (next_bucket_ < buckets_.size()) {
    const Bucket& bucket = buckets_[next_bucket_];
    if (std::min(bucket.end, graph_->arena_count()) > ready) return;
    const Stream stream = backend_->communication_stream();
    backend_->record(ready_, nullptr);
    backend_->wait(stream, ready_);
    communicator_->all_reduce(parameters_.grads() + bucket.begin, bucket.end - bucket.begin,
                              stream);
    if (++next_bucket_ == buckets_.size()) {
      backend_->record(reduced_, stream);
      backend_->wait(nullptr, reduced_);
    }
  }
}

UpdateResult Trainer::update(double lr, int64_t images) {
  const auto start = std::chrono::steady_clock::now();
  const int ranks = communicator_ ? communicator_->size() : 1;
  params_.lr = static_cast<float>(lr);
  params_.divisor = static_cast<float>(
      double(images) / (double(options_.local_batch) * options_.accumulate * ranks));
  char* const small = small_.data();
  backend_->to_device(small + at_.params, &params_, sizeof params_, nullptr);
  const auto* params = reinterpret_cast<const StepParams*>(small + at_.params);
  auto* state = reinterpret_cast<UpdateState*>(small + at_.state);
  const size_t count = graph_->arena_count();
  const OptimizerOptions& o = options_.optimizer;
  Kernels& kernels = backend_->kernels();
  kernels.run(GradientNorm{.state = state,
                           .workspace = small + at_.workspace,
                           .grad = parameters_.grads(),
                           .params = params,
                           .count = count},
              nullptr);
  kernels.run(OptimizerUpdate{.weight = parameters_.weights(),
                              .copy = graph_->dtype() == DType::fp32 ? nullptr : parameters_.copy(),
                              .m = parameters_.m(),
                              .v = parameters_.v(),
                              .state = state,
                              .grad = parameters_.grads(),
                              .decay = reinterpret_cast<const uint8_t*>(small + at_.decay),
                              .params = params,
                              .count = count,
                              .momentum = o.momentum,
                              .beta1 = o.beta1,
                              .beta2 = o.beta2,
                              .eps = o.eps,
                              .weight_decay = o.weight_decay,
                              .clip = o.clip,
                              .kind = o.kind,
                              .nesterov = o.nesterov,
                              .dtype = graph_->dtype()},
              nullptr);
  float tail[3];
  UpdateState after;
  backend_->to_host(tail, parameters_.grads() + count, sizeof tail, nullptr);
  backend_->to_host(&after, state, sizeof after, nullptr);
  backend_->synchronize(nullptr);
  if (profile_)
    profile_->seconds["optimizer"] +=
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return {.loss_sum = tail[0],
          .count = tail[1],
          .grad_norm = after.grad_norm,
          .skipped = after.found_inf != 0,
          .stop = tail[2] > 0};
}

void Trainer::begin_evaluation() {
  backend_->zero(small_.data() + at_.sums, 4 * sizeof(double), nullptr);
}

void Trainer::evaluate(const Batch& batch) {
  upload(batch);
  Run r = run();
  r.training = false;
  r.sums = reinterpret_cast<double*>(small_.data() + at_.sums);
  stage_.forward(r, 0);
}

EvaluationSums Trainer::end_evaluation() {
  auto* sums = reinterpret_cast<double*>(small_.data() + at_.sums);
  if (communicator_) communicator_->all_reduce(sums, 4, nullptr);
  double host[4];
  backend_->to_host(host, sums, sizeof host, nullptr);
  backend_->synchronize(nullptr);
  return {.loss = host[0], .count = host[1], .top1 = host[2], .top5 = host[3]};
}

}  // namespace bv

#include "engine/training/trainer.h"

#include <algorithm>
#include <cmath>

namespace bv {
namespace {

Parameters::Needs needs(const OptimizerOptions& o) {
  const bool adam = o.kind != OptimizerKind::sgd;
  return {.first_moment = adam || o.momentum != 0, .second_moment = adam};
}

}  // namespace

// Params are a ring: the host may be a whole update ahead of the device.
struct Trainer::HostBlock {
  UpdateState state;
  float tail[3];
  StepParams params[1];  // as many as there are between two results of an update, twice
};

// Collectives inside a micro-step. They run on the communication stream, like the gradients', so that
// all processes call all of them in the same order.
class Trainer::TrainingPeers final : public Peers {
 public:
  TrainingPeers(Backend& backend, Communicator& communicator)
      : backend_(backend),
        communicator_(communicator),
        ready_(backend.create_event()),
        done_(backend.create_event()) {}
  int rank() const override { return communicator_.rank(); }
  void all_reduce(float* data, size_t count) const override {
    in_turn([&](Stream stream) { communicator_.all_reduce(data, count, stream); });
  }
  void all_gather(float* data, size_t count) const override {
    in_turn([&](Stream stream) { communicator_.all_gather(data, count, stream); });
  }

 private:
  template <class Collective>
  void in_turn(Collective collective) const {
    const Stream stream = backend_.communication_stream();
    backend_.record(ready_, nullptr);
    backend_.wait(stream, ready_);
    collective(stream);
    backend_.record(done_, stream);
    backend_.wait(nullptr, done_);
  }

  Backend& backend_;
  Communicator& communicator_;
  Event ready_, done_;
};

Trainer::~Trainer() = default;

Trainer::Trainer(Backend& backend, Communicator* communicator, const Graph& graph,
                 const TrainerOptions& options)
    : backend_(&backend),
      communicator_(communicator && communicator->size() > 1 ? communicator : nullptr),
      graph_(&graph),
      options_(options),
      stage_(backend, graph, 0, static_cast<int>(graph.nodes().size()), 1, options.recompute),
      parameters_(backend, graph, needs(options.optimizer)),
      ready_(backend.create_event()),
      reduced_(backend.create_event()),
      updated_(backend.create_event()) {
  if (communicator_ && options.sync_batchnorm)
    peers_ = std::make_unique<TrainingPeers>(backend, *communicator_);
  size_t bytes = 0;
  const auto place = [&bytes](size_t size) {
    const size_t at = bytes;
    bytes += (size + 255) / 256 * 256;
    return at;
  };
  const auto batch = static_cast<size_t>(options.local_batch);
  const auto place_batch = [&]() -> BatchPlace {
    const auto pixels = static_cast<size_t>(options.height) * static_cast<size_t>(options.width);
    const size_t images = place(batch * pixels * 3), crops = place(batch * sizeof(Crop));
    return {.images = images, .crops = crops, .labels = place(batch * sizeof(int32_t))};
  };
  at_.batch = place_batch();
  for (int slot = 0; slot < 2 && runs_ahead(); ++slot) {
    at_.incoming[slot] = place_batch();
    uploaded_[slot] = backend.create_event();
    consumed_[slot] = backend.create_event();
  }
  at_.params = place(sizeof(StepParams));
  at_.state = place(sizeof(UpdateState));
  at_.sums = place(4 * sizeof(double));
  at_.decay = place(graph.arena_count() / OptimizerUpdate::decay_chunk);
  at_.workspace =
      place(backend.kernels().workspace_bytes(GradientNorm{.count = graph.arena_count()}));
  at_.bytes = bytes;

  plan_ = {.weights = parameters_.weight_bytes() + parameters_.buffer_bytes(),
           .gradients = parameters_.gradient_bytes(),
           .optimizer = parameters_.optimizer_bytes(),
           .compute_weights = parameters_.compute_weights_bytes(),
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
  host_ = {static_cast<HostBlock*>(backend_->allocate_host(
               sizeof(HostBlock) + (params_in_flight() - 1) * sizeof(StepParams))),
           [backend = backend_](HostBlock* block) { backend->release_host(block); }};
  const auto flags = decay_flags(*graph_, options_.optimizer.decay_all);
  backend_->to_device(small_.data() + at_.decay, flags.data(), flags.size(), nullptr);
  backend_->synchronize(nullptr);
  set_state({.loss_scale = 1});
}

UpdateState Trainer::state() const {
  UpdateState state;
  backend_->to_host(&state, small<void>(at_.state), sizeof state, nullptr);
  backend_->synchronize(nullptr);
  return state;
}

void Trainer::set_state(const UpdateState& state) {
  backend_->to_device(small<void>(at_.state), &state, sizeof state, nullptr);
  backend_->synchronize(nullptr);
}

void Trainer::profile(Profile* to) {
  profile_ = to;
  stage_.profile(to);
}

Context Trainer::run() const {
  Context run;
  run.weights = parameters_.weights();
  run.compute_weights = parameters_.compute_weights();
  run.grads = parameters_.grads();
  run.buffers = parameters_.buffers();
  run.peers = peers_.get();
  run.params = small<const StepParams>(at_.params);
  run.state = small<UpdateState>(at_.state);
  run.images = small<const uint8_t>(at_.batch.images);
  run.crops = small<const Crop>(at_.batch.crops);
  run.labels = small<const int32_t>(at_.batch.labels);
  return run;
}

void Trainer::copy_batch(const Batch& from, const BatchPlace& to, Stream stream) {
  const auto images = static_cast<size_t>(options_.local_batch);
  backend_->to_device(
      small<void>(to.images), from.images,
      images * static_cast<size_t>(options_.height) * static_cast<size_t>(options_.width) * 3,
      stream);
  backend_->to_device(small<void>(to.crops), from.crops, images * sizeof(Crop), stream);
  backend_->to_device(small<void>(to.labels), from.labels, images * sizeof(int32_t), stream);
}

void Trainer::upload(const Batch& batch) {
  if (!runs_ahead()) return copy_batch(batch, at_.batch, nullptr);
  const int slot = uploads_++ % 2;
  const Stream stream = backend_->upload_stream();
  backend_->wait(stream, consumed_[slot]);
  copy_batch(batch, at_.incoming[slot], stream);
  backend_->record(uploaded_[slot], stream);
  backend_->wait(nullptr, uploaded_[slot]);
  const BatchPlace& from = at_.incoming[slot];
  backend_->copy(
      small<void>(at_.batch.images), small<void>(from.images),
      from.labels + sizeof(int32_t) * static_cast<size_t>(options_.local_batch) - from.images,
      nullptr);
  backend_->record(consumed_[slot], nullptr);
}

void Trainer::wait_for_upload() {
  if (runs_ahead() && uploads_ > 0) backend_->host_wait(uploaded_[(uploads_ - 1) % 2]);
}

size_t Trainer::params_in_flight() const {
  return 2 * (static_cast<size_t>(options_.accumulate) + 1);
}

void Trainer::set_params() {
  StepParams& host = host_->params[params_written_++ % params_in_flight()];
  host = params_;
  backend_->to_device(small<void>(at_.params), &host, sizeof host, nullptr);
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
  set_params();
  upload(batch);
  play(micro_steps_[size_t{step.first} + 2 * size_t{step.last}],
       [this, first = step.first, last = step.last] { issue_micro_step(first, last); });
}

// Recorded work can't be timed node by node.
void Trainer::play(std::unique_ptr<Recording>& recording, std::function<void()> issue) {
  if (profile_) return issue();
  if (!recording) recording = backend_->recording(std::move(issue));
  recording->replay();
}

void Trainer::issue_micro_step(bool first, bool last) {
  Context r = run();
  r.accumulate = !first;
  stage_.forward(r, 0);
  if (last && communicator_) {
    next_bucket_ = 0;
    if (!peers_) sum_buffers();
    stage_.backward(r, 0, [&](int node) { reduce_ready(graph_->ready_after(node)); });
  } else {
    stage_.backward(r, 0);
  }
}

// Each process has its own running statistics; from here on all have the sum, which the update
// turns into the mean.
void Trainer::sum_buffers() {
  if (!graph_->buffer_count()) return;
  const Stream stream = backend_->communication_stream();
  backend_->record(ready_, nullptr);
  backend_->wait(stream, ready_);
  communicator_->all_reduce(parameters_.buffers(), graph_->buffer_count(), stream);
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

void Trainer::start_update(double lr, int64_t images) {
  const int ranks = communicator_ ? communicator_->size() : 1;
  params_.lr = static_cast<float>(lr);
  params_.divisor = static_cast<float>(
      double(images) / (double(options_.local_batch) * options_.accumulate * ranks));
  set_params();
  const auto update = [this] { play(update_, [this] { issue_update(); }); };
  profile_ ? profile_->timed(*backend_, "optimizer", update) : update();
  backend_->record(updated_, nullptr);
}

void Trainer::issue_update() {
  const auto* params = small<const StepParams>(at_.params);
  auto* state = small<UpdateState>(at_.state);
  const size_t count = graph_->arena_count();
  const OptimizerOptions& o = options_.optimizer;
  Kernels& kernels = backend_->kernels();
  if (communicator_ && !peers_ && graph_->buffer_count())
    kernels.run(Scale{.data = parameters_.buffers(),
                      .count = graph_->buffer_count(),
                      .factor = 1 / static_cast<float>(communicator_->size())},
                nullptr);
  kernels.run(GradientNorm{.state = state,
                           .workspace = small<void>(at_.workspace),
                           .grad = parameters_.grads(),
                           .params = params,
                           .count = count},
              nullptr);
  kernels.run(
      OptimizerUpdate{.weight = parameters_.weights(),
                      .compute_weights =
                          graph_->dtype() == DType::fp32 ? nullptr : parameters_.compute_weights(),
                      .m = parameters_.m(),
                      .v = parameters_.v(),
                      .state = state,
                      .grad = parameters_.grads(),
                      .decay = small<const uint8_t>(at_.decay),
                      .params = params,
                      .count = count,
                      .momentum = o.momentum,
                      .beta1 = o.beta1,
                      .beta2 = o.beta2,
                      .eps = o.eps,
                      .weight_decay = o.weight_decay,
                      .clip = o.clip,
                      .scaling = options_.scaling,
                      .kind = o.kind,
                      .nesterov = o.nesterov,
                      .dtype = graph_->dtype()},
      nullptr);
  backend_->to_host(host_->tail, parameters_.grads() + count, sizeof host_->tail, nullptr);
  backend_->to_host(&host_->state, state, sizeof host_->state, nullptr);
}

UpdateResult Trainer::finish_update() {
  backend_->host_wait(updated_);
  const UpdateState& after = host_->state;
  return {.loss_sum = host_->tail[0],
          .count = host_->tail[1],
          .grad_norm = after.grad_norm,
          .skipped = after.found_inf != 0,
          .skipped_in_a_row = after.skipped,
          .loss_scale = after.loss_scale,
          .stop = host_->tail[2] > 0};
}

std::pair<int, int> Trainer::graph_nodes() const {
  const auto nodes = [](const auto& recording) { return recording ? recording->nodes() : 0; };
  int largest = 0;
  for (const auto& recording : micro_steps_) largest = std::max(largest, nodes(recording));
  return {largest, nodes(update_)};
}

void Trainer::begin_evaluation() {
  backend_->zero(small<void>(at_.sums), 4 * sizeof(double), nullptr);
}

void Trainer::evaluate(const Batch& batch) {
  upload(batch);
  play(evaluation_, [this] {
    Context r = run();
    r.training = false;
    r.sums = small<double>(at_.sums);
    stage_.forward(r, 0);
  });
}

EvaluationSums Trainer::end_evaluation() {
  auto* sums = small<double>(at_.sums);
  if (communicator_) communicator_->all_reduce(sums, 4, nullptr);
  double host[4];
  backend_->to_host(host, sums, sizeof host, nullptr);
  backend_->synchronize(nullptr);
  return {.loss = host[0], .count = host[1], .top1 = host[2], .top5 = host[3]};
}

}  // namespace bv

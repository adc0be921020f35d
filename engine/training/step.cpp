#include "engine/training/step.h"

#include <algorithm>

namespace bv {

TrainingStep::TrainingStep(const Parts& parts, const Sizes& sizes)
    : parts_(parts),
      sizes_(sizes),
      recorded_(parts.backend),
      params_(static_cast<size_t>(sizes.micro_batches)) {
  for (Event& event : updated_) event = parts.backend.create_event();
}

// Uploads the batch while the device still computes the previous micro-step.
void TrainingStep::micro_step(const Batch& batch, const MicroStep& step) {
  parts_.feed.upload(batch);
  for (int micro = 0; micro < sizes_.micro_batches; ++micro)
    params_[static_cast<size_t>(micro)] = params_of(batch, step, micro);
  first_ = step.first;
  if (step.last) return;  // start_update() knows lr and the number of images, and computes it
  send_params();
  recorded_.run({RecordedWork::Key::micro_step, &parts_.model.graph(), first_},
                [this, first = first_] { compute_gradients(first, false); });
}

void TrainingStep::start_update(double lr, int64_t images) {
  for (StepParams& params : params_) {
    params.lr = static_cast<float>(lr);
    params.divisor = static_cast<float>(double(images) / full_update());
  }
  send_params();
  recorded_.run({RecordedWork::Key::update, &parts_.model.graph(), first_}, [this, first = first_] {
    compute_gradients(first, true);
    timed(profile_, parts_.backend, "optimizer", [this] { update(); });
    if (parts_.sync && parts_.sync->in_parts())
      timed(profile_, parts_.backend, "exposed communication",
            [this] { parts_.sync->share_weights(parts_.parameters.weights()); });
  });
  const auto turn = static_cast<int>(started_++ % 2);  // outside the recording, since it alternates
  parts_.optimizer.send_result(turn);
  parts_.backend.record(updated_[static_cast<size_t>(turn)], nullptr);
}

// `stop` carries two requests, summed over all processes: at least 1 from each process that was
// asked to stop, and 1/2 from rank 0 for a checkpoint, in one micro-batch only, so that it stays a
// half. Gradients are summed with the weight of one image in a full update (the device multiplies
// by the loss scale, too); `divisor`, known when the update starts, corrects the smaller last
// update of an epoch.
StepParams TrainingStep::params_of(const Batch& batch, const MicroStep& step, int micro) const {
  const int images = sizes_.batch / sizes_.micro_batches, before = micro * images;
  // Summed in GradientTail; only the stage that computes the loss counts images.
  const int count = parts_.model.computes_loss() ? std::clamp(batch.count - before, 0, images) : 0;
  return {.seed = sizes_.seed,
          .epoch = static_cast<uint32_t>(step.epoch),
          .position = batch.position + static_cast<uint32_t>(before),
          .lr = 0,
          .grad_scale = static_cast<float>(1 / full_update()),
          .divisor = 1,
          .count = static_cast<float>(count),
          .stop = (step.stop ? 1.0f : 0.0f) + (step.save && micro == 0 ? .5f : 0.0f)};
}

double TrainingStep::full_update() const {
  return double(sizes_.batch) * sizes_.accumulate * sizes_.replicas;
}

// One context per micro-batch. The update's first micro-batch overwrites the gradients, the others
// add to them; each shard has gradients of its own.
std::vector<Context> TrainingStep::contexts(bool first) const {
  const Parameters& parameters = parts_.parameters;
  Context context = parameters.context(parts_.model.graph().dtype(), parameters.weights());
  context.state = parts_.optimizer.device_state();
  if (parts_.sync) context.peers = parts_.sync->peers();
  std::vector<Context> contexts(static_cast<size_t>(sizes_.micro_batches), context);
  for (int micro = 0; micro < sizes_.micro_batches; ++micro) {
    Context& own = contexts[static_cast<size_t>(micro)];
    parts_.feed.bind(own, micro);
    const bool sharded = parameters.shards() > 1;
    if (sharded) own.grads = parameters.grads(micro), own.buffers = parameters.buffers(micro);
    own.accumulate = !first || (micro > 0 && !sharded);
  }
  return contexts;
}

// Forward, loss (the graph's last node, whose backward also writes GradientTail behind the
// gradients), backward. During an update's last backward, finished
// gradients are summed over the replicas on streams of their own.
void TrainingStep::compute_gradients(bool first, bool last) {
  const std::vector<Context> micro_batches = contexts(first);
  const auto communicate = [this](const auto& issue) {
    timed(profile_, parts_.backend, "exposed communication", issue);
  };
  BackwardCallbacks reduction;
  if (GradientSync* const sync = last ? parts_.sync : nullptr)
    reduction = {.begins = [=] { communicate([=] { sync->start(); }); },
                 .ready = [=](size_t ready) { communicate([=] { sync->reduce(ready); }); }};
  parts_.model.share_batch(parts_.feed, micro_batches[0]);  // nothing without --pipeline
  parts_.model.train(micro_batches, reduction);
}

// Averages the running statistics, computes the gradient's norm, then updates weights, moments and
// moving average in one pass.
void TrainingStep::update() {
  traced(trace_, nullptr, {Work::update}, [this] {
    const Model& model = parts_.model;
    GradientSync* const sync = parts_.sync;
    if (sync) sync->average_buffers();
    parts_.optimizer.run(parts_.feed.params(0), model.graph().dtype(),
                         {.replicas = sync && sync->in_parts() ? &sync->channel() : nullptr,
                          .stages = model.stage_channel()});
  });
}

// The result covers all replicas: the device has summed over them.
UpdateResult TrainingStep::finish_update() {
  const auto turn = static_cast<int>(finished_++ % 2);
  parts_.backend.host_wait(updated_[static_cast<size_t>(turn)]);
  return parts_.optimizer.result(turn);
}

void TrainingStep::profile(Profile* to) {
  profile_ = to;
  recorded_.profile(to);
}

}  // namespace bv

#include "engine/inference/evaluator.h"

#include <algorithm>
#include <utility>

namespace bv {

Evaluator::Evaluator(Backend& backend, Communicator* communicator, Model& model, Feed& feed,
                     const Graph& largest, const Sizes& sizes)
    : backend_(&backend),
      communicator_(communicator),
      model_(&model),
      feed_(&feed),
      sizes_(sizes),
      outputs_(backend, largest),
      recorded_(backend) {}

void Evaluator::begin(const Context& parameters, Outputs::Receive receive) {
  backend_->zero(sums_.data(), sizeof(EvaluationSums), nullptr);
  parameters_ = parameters;
  parameters_.training = false;
  parameters_.sums = model_->computes_loss() ? sums_.data<double>() : nullptr;
  if (receive) outputs_.begin(std::move(receive));
}

Context Evaluator::context_of(int micro) const {
  Context context = parameters_;
  feed_->bind(context, micro);
  return context;
}

void Evaluator::run(const Batch& batch) {
  feed_->upload(batch);
  if (profile_) model_->profile(nullptr);  // timed as one section
  const int images = sizes_.batch / sizes_.micro_batches;
  for (int micro = 0; micro < sizes_.micro_batches; ++micro) {
    const Context context = context_of(micro);
    recorded_.run({.kind = RecordedWork::Key::evaluation,
                   .graph = &model_->graph(),
                   .weights = context.weights,
                   .micro = micro},
                  [this, context, micro] {
                    if (micro == 0) model_->share_batch(*feed_, context);
                    traced(trace_, nullptr, {Work::evaluation, 0, -1, micro},
                           [&] { model_->evaluate(context, micro); });
                  });
    const int before = micro * images;
    Batch rows = batch;
    rows.position += static_cast<uint32_t>(before);
    rows.count = std::clamp(batch.count - before, 0, images);
    if (rows.labels) rows.labels += before;
    if (model_->computes_loss())
      outputs_.add(rows, model_->last_chunk(), rows.labels ? nullptr : context.labels);
  }
  if (profile_) model_->profile(profile_);
}

EvaluationSums Evaluator::end() {
  outputs_.finish();
  if (communicator_) communicator_->all_reduce(sums_.data<double>(), 4, nullptr);
  EvaluationSums sums;
  backend_->to_host(&sums, sums_.data(), sizeof sums, nullptr);
  backend_->synchronize(nullptr);
  return sums;
}

void Evaluator::profile(Profile* to) {
  profile_ = to;
  recorded_.profile(to);
}

}  // namespace bv

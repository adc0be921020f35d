#include "engine/training/model.h"

#include <algorithm>

namespace bv {

Model::Model(Backend& backend, const Graph& graph, Optimizer& optimizer, GradientSync* sync,
             bool recompute)
    : backend_(&backend),
      graph_(&graph),
      optimizer_(&optimizer),
      sync_(sync),
      stage_(backend, graph, 0, static_cast<int>(graph.nodes().size()), 1, recompute) {}

void Model::allocate(const Context& context) {
  stage_.allocate();
  context_ = context;
}

void Model::profile(Profile* to) {
  profile_ = to;
  stage_.profile(to);
}

// Recorded work can't be timed node by node.
void Model::play(std::unique_ptr<Recording>& recording, std::function<void()> issue) {
  if (profile_) return issue();
  if (!recording) recording = backend_->recording(std::move(issue));
  recording->replay();
}

void Model::micro_step(bool first, bool last) {
  play(micro_steps_[size_t{first} + 2 * size_t{last}], [this, first, last] {
    Context context = context_;
    context.accumulate = !first;
    stage_.forward(context, 0);
    if (!last || !sync_) return stage_.backward(context, 0);
    sync_->start();
    stage_.backward(context, 0, [this](int node) { sync_->reduce(graph_->ready_after(node)); });
  });
}

void Model::update() {
  const auto run = [this] {
    play(update_, [this] {
      if (sync_) sync_->average_buffers();
      optimizer_->run(context_.params);
    });
  };
  profile_ ? profile_->timed(*backend_, "optimizer", run) : run();
}

void Model::evaluate(double* sums) {
  play(evaluation_, [this, sums] {
    Context context = context_;
    context.training = false;
    context.sums = sums;
    stage_.forward(context, 0);
  });
}

std::pair<int, int> Model::graph_nodes() const {
  const auto nodes = [](const auto& recording) { return recording ? recording->nodes() : 0; };
  int largest = 0;
  for (const auto& recording : micro_steps_) largest = std::max(largest, nodes(recording));
  return {largest, nodes(update_)};
}

}  // namespace bv

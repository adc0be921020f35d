#include "engine/model/model_chunk.h"

namespace bv {

ModelChunk::ModelChunk(Backend& backend, const Graph& graph, int begin, int end, int slots,
                       Passes passes)
    : backend_(&backend),
      graph_(&graph),
      begin_(begin),
      end_(end),
      slots_(slots),
      layout_(plan_stage(graph, backend.kernels(), begin, end, passes)) {}

void ModelChunk::allocate() {
  saved_ = DeviceMemory(*backend_, saved_bytes());
  scratch_ = DeviceMemory(*backend_, scratch_bytes());
  use(saved_.data(), scratch_.data());
}

void ModelChunk::use(char* saved, char* scratch) {
  workspace_ = scratch;
  places_.clear();
  for (int slot = 0; slot < slots_; ++slot) {
    std::vector<char*> places(layout_.places.size(), nullptr);
    for (size_t s = 0; s < places.size(); ++s) {
      const Layout::Place& place = layout_.places[s];
      if (place.kind == Layout::Place::saved)
        places[s] = saved + layout_.saved_bytes * static_cast<size_t>(slot) + place.offset;
      else if (place.kind == Layout::Place::scratch)
        places[s] = scratch + place.offset;
    }
    places_.push_back(std::move(places));
  }
}

void ModelChunk::run_forward(Context& run, int begin, int end) const {
  for (int i = begin; i < end; ++i) {
    const Node& node = graph_->nodes()[static_cast<size_t>(i)];
    run.workspace = workspace_ + layout_.forward_workspace[static_cast<size_t>(i - begin_)];
    const Node::Pass& forward = graph_->forward(i, {begin_, end_}, layout_.repeats);
    timed(profile_, *backend_, node.type, [&] { forward(run); });
  }
}

Context ModelChunk::bound(Context run, int slot) const {
  run.graph = graph_;
  run.kernels = &backend_->kernels();
  run.place = &places_[static_cast<size_t>(slot)];
  return run;
}

void ModelChunk::forward(Context run, int slot) const {
  run = bound(run, slot);
  run_forward(run, begin_, end_);
}

void ModelChunk::backward(Context run, int slot, const std::function<void(size_t)>& ready) const {
  run = bound(run, slot);
  auto next = layout_.recomputes.rbegin();
  for (int i = end_ - 1; i >= begin_; --i) {
    if (next != layout_.recomputes.rend() && next->before == i + 1) {
      run.recomputing = true;
      run_forward(run, next->begin, next->end);
      run.recomputing = false;
      ++next;
    }
    const Node& node = graph_->nodes()[static_cast<size_t>(i)];
    run.workspace = workspace_ + layout_.backward_workspace[static_cast<size_t>(i - begin_)];
    const Node::Pass& backward = graph_->backward(i, {begin_, end_});
    timed(profile_, *backend_, node.type, [&] { backward(run); });
    if (ready) ready(graph_->ready_after(i));
  }
}

}  // namespace bv

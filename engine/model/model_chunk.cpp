#include "engine/model/model_chunk.h"

namespace bv {

ModelChunk::ModelChunk(Backend& backend, const Graph& graph, int begin, int end, int slots,
                       Passes passes, bool together)
    : backend_(&backend),
      graph_(&graph),
      begin_(begin),
      end_(end),
      slots_(slots),
      together_(together),
      layout_(plan_stage(graph, backend.kernels(), begin, end, passes)) {}

void ModelChunk::allocate() {
  saved_ = DeviceMemory(*backend_, saved_bytes());
  scratch_ = DeviceMemory(*backend_, scratch_bytes());
  use(saved_.data(), scratch_.data());
}

void ModelChunk::use(char* saved, char* scratch) {
  places_.clear();
  scratch_of_.clear();
  for (int slot = 0; slot < slots_; ++slot) {
    char* const own = saved + slot_bytes() * static_cast<size_t>(slot);
    scratch_of_.push_back(together_ ? own + layout_.saved_bytes : scratch);
    std::vector<char*> places(layout_.places.size(), nullptr);
    for (size_t s = 0; s < places.size(); ++s) {
      const Layout::Place& place = layout_.places[s];
      if (place.kind == Layout::Place::saved)
        places[s] = own + place.offset;
      else if (place.kind == Layout::Place::scratch)
        places[s] = scratch_of_.back() + place.offset;
    }
    places_.push_back(std::move(places));
  }
}

Context ModelChunk::bound(Context run, int slot) const {
  run.graph = graph_;
  run.kernels = &backend_->kernels();
  run.place = &places_[static_cast<size_t>(slot)];
  return run;
}

std::vector<Context> ModelChunk::bound(std::span<const Context> runs) const {
  std::vector<Context> all;
  for (const Context& run : runs) {
    const int slot = static_cast<int>(all.size());
    all.push_back(bound(run, slot));
    all.back().together = {static_cast<int>(runs.size()), slot_bytes()};
    all.back().slot = slot;
  }
  return all;
}

void ModelChunk::forward(const Context& run, int slot) const {
  Context one = bound(run, slot);
  run_forward({&one, 1}, begin_, end_);
}

void ModelChunk::forward(std::span<const Context> runs) const {
  std::vector<Context> all = bound(runs);
  run_forward(all, begin_, end_);
}

void ModelChunk::backward(const Context& run, int slot,
                          const std::function<void(size_t)>& ready) const {
  Context one = bound(run, slot);
  run_backward({&one, 1}, ready);
}

void ModelChunk::backward(std::span<const Context> runs,
                          const std::function<void(size_t)>& ready) const {
  std::vector<Context> all = bound(runs);
  run_backward(all, ready);
}

void ModelChunk::run_forward(std::span<Context> runs, int begin, int end) const {
  for (int i = begin; i < end; ++i) {
    const Node& node = graph_->nodes()[static_cast<size_t>(i)];
    const Node::Pass& forward = graph_->forward(i, {begin_, end_}, layout_.repeats);
    timed(profile_, *backend_, node.type, [&] {
      for (Context& run : runs) {
        run.workspace = scratch_of_[static_cast<size_t>(run.slot)] +
                        layout_.forward_workspace[static_cast<size_t>(i - begin_)];
        forward(run);
      }
    });
  }
}

void ModelChunk::run_backward(std::span<Context> runs,
                              const std::function<void(size_t)>& ready) const {
  auto next = layout_.recomputes.rbegin();
  for (int i = end_ - 1; i >= begin_; --i) {
    if (next != layout_.recomputes.rend() && next->before == i + 1) {
      for (Context& run : runs) run.recomputing = true;
      run_forward(runs, next->begin, next->end);
      for (Context& run : runs) run.recomputing = false;
      ++next;
    }
    const Node& node = graph_->nodes()[static_cast<size_t>(i)];
    const Node::Pass& backward = graph_->backward(i, {begin_, end_});
    const auto run_half = [&](Half half) {
      for (Context& run : runs) {
        run.half = half;
        run.workspace = scratch_of_[static_cast<size_t>(run.slot)] +
                        layout_.backward_workspace[static_cast<size_t>(i - begin_)];
        backward(run);
        run.half = Half::both;
      }
    };
    timed(profile_, *backend_, node.type, [&] {
      if (runs.size() == 1 || !node.in_halves) return run_half(Half::both);
      run_half(Half::first);
      run_half(Half::second);
    });
    if (ready) ready(graph_->ready_after(i));
  }
}

}  // namespace bv

// A model computed by one process: forward, then backward, for each micro-batch in turn, or node by
// node for all micro-batches together.
#pragma once
#include "engine/model/model.h"

namespace bv {

class WholeModel final : public Model {
 public:
  // together: number of micro-batches that run together; 1: one at a time.
  WholeModel(Backend& backend, const Graph& graph, Passes passes, int together = 1)
      : chunk_(backend, graph, 0, static_cast<int>(graph.nodes().size()), together, passes,
               together > 1),
        together_(together > 1) {}
  const Graph& graph() const override { return chunk_.graph(); }
  size_t saved_bytes() const override { return chunk_.saved_bytes(); }
  size_t scratch_bytes() const override { return chunk_.scratch_bytes(); }
  void use(char* saved, char* scratch) override { chunk_.use(saved, scratch); }
  void train(std::span<const Context> micro_batches, const BackwardCallbacks& callbacks) override {
    if (together_) return train_together(micro_batches, callbacks);
    const int count = static_cast<int>(micro_batches.size());
    for (int micro = 0; micro < count; ++micro) {
      const Context& context = micro_batches[static_cast<size_t>(micro)];
      const bool last = micro + 1 == count;
      traced(trace_, nullptr, {.work = Work::forward, .chunk = 0, .micro = micro},
             [&] { chunk_.forward(context, 0); });
      if (last && callbacks.begins) callbacks.begins();
      traced(trace_, nullptr, {.work = Work::backward, .chunk = 0, .micro = micro},
             [&] { chunk_.backward(context, 0, last ? callbacks.ready : nullptr); });
    }
  }
  void evaluate(const Context& context, int) override { chunk_.forward(context, 0); }
  const ModelChunk& last_chunk() const override { return chunk_; }
  void profile(Profile* to) override { chunk_.profile(to); }
  void trace(Trace* to) override { trace_ = to; }

 private:
  void train_together(std::span<const Context> all, const BackwardCallbacks& callbacks) {
    traced(trace_, nullptr, {.work = Work::forward, .chunk = 0, .micro = 0},
           [&] { chunk_.forward(all); });
    if (callbacks.begins) callbacks.begins();
    traced(trace_, nullptr, {.work = Work::backward, .chunk = 0, .micro = 0},
           [&] { chunk_.backward(all, callbacks.ready); });
  }

  ModelChunk chunk_;
  bool together_;
  Trace* trace_ = nullptr;
};

}  // namespace bv

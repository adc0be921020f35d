// A pipeline's stage: one or more chunks of the model, for all micro-batches of a step, with the
// exchanges between stages. The chunks share one scratch memory.
#pragma once
#include <vector>

#include "engine/model/model.h"
#include "engine/pipeline/grid.h"
#include "engine/pipeline/stage_links.h"
#include "engine/pipeline/tasks.h"

namespace bv {

// How a model is cut into parts, and a batch into micro-batches.
struct PipelinePlan {
  PipelineShape shape{};
  Grid grid{};               // of this process
  std::vector<Slice> parts;  // nodes of each; empty: the model is whole

  std::vector<Slice> own() const;  // this stage's, by chunk
  bool cut() const { return shape.stages > 1; }
};

class PipelinedModel final : public Model {
 public:
  // links: null if only the memory plan is needed.
  PipelinedModel(Backend&, const Graph&, const PipelinePlan&, Passes, StageLinks* links);
  const ModelChunk& chunk(int i) const { return chunks_[static_cast<size_t>(i)]; }

  const Graph& graph() const override { return *graph_; }
  size_t saved_bytes() const override;
  size_t scratch_bytes() const override;
  void use(char* saved, char* scratch) override;
  // The first stage sends the labels to the last one.
  void share_batch(const Feed&, const Context& first) override;
  void train(std::span<const Context> micro_batches, const BackwardCallbacks&) override;
  void evaluate(const Context&, int micro) override;  // uses slot 0
  bool computes_loss() const override { return plan_.grid.last(); }
  const ModelChunk& last_chunk() const override { return chunks_.back(); }
  const Channel* stage_channel() const override { return links_ ? &links_->channel() : nullptr; }
  void profile(Profile*) override;
  void trace(Trace*) override;

 private:
  // The exchanges in flight that read or write a slot, by chunk and slot.
  using InFlight = std::vector<std::vector<std::vector<size_t>>>;
  InFlight none_in_flight() const;
  void exchange(const Round&, InFlight&, bool evaluating = false);
  void wait_transfers(std::vector<size_t>& in_flight);

  Backend* backend_;
  const Graph* graph_;
  PipelinePlan plan_;
  StageLinks* links_;
  std::vector<Task> tasks_;
  std::vector<Round> rounds_;
  std::vector<int> slots_;  // by chunk
  std::vector<ModelChunk> chunks_;
  Trace* trace_ = nullptr;
};

}  // namespace bv

// What a process computes of a model: a stage of a pipeline, in one chunk or several, or the whole
// model; for all micro-batches of a step, with the exchanges between the stages. The chunks share
// one scratch memory.
#pragma once
#include <functional>
#include <vector>

#include "engine/model/model_chunk.h"
#include "engine/pipeline/grid.h"
#include "engine/pipeline/stage_links.h"
#include "engine/pipeline/tasks.h"
#include "engine/trace/trace.h"

namespace bv {

// How a model is computed: cut into parts, a batch into micro-batches.
struct PipelinePlan {
  PipelineShape shape{};
  Grid grid{};               // of this process
  std::vector<Slice> parts;  // nodes of each; none: the model is whole

  std::vector<Slice> own() const;  // by chunk
  bool cut() const { return shape.stages > 1; }
};

class ModelPart {
 public:
  // Plans; allocate() takes the memory.
  ModelPart(Backend&, const Graph&, const PipelinePlan&, Passes);
  size_t saved_bytes() const;
  size_t scratch_bytes() const;
  // At least these bytes, where another part will share() them.
  void allocate(size_t saved = 0, size_t scratch = 0);
  // Instead of allocate(): the memory of another part, when that isn't run.
  void share(const ModelPart& other) { use(other.saved_.data(), other.scratch_.data()); }
  const Graph& graph() const { return *graph_; }
  const ModelChunk& chunk(int i) const { return chunks_[static_cast<size_t>(i)]; }
  const ModelChunk& last_chunk() const { return chunks_.back(); }
  bool computes_loss() const { return plan_.grid.last(); }

  // Forward and backward of all micro-batches. Links: null where the model is whole.
  struct Step {
    std::function<Context(int micro)> context;
    std::function<void()> last_forward = [] {};  // after it, and before the backward that follows
    // After a node's last backward: parameters up to Graph::ready_after(node) are final.
    std::function<void(int node)> final = {};
  };
  void train(const Step&, StageLinks*) const;
  // Forward alone, of one micro-batch in slot 0.
  void evaluate(const Context&, int micro, StageLinks*) const;

  void profile(Profile*);
  void trace(Trace* to) { trace_ = to; }

 private:
  void use(char* saved, char* scratch);
  // By chunk and slot, the exchanges under way that read or write it.
  using InFlight = std::vector<std::vector<std::vector<size_t>>>;
  InFlight none_in_flight() const;
  void exchange(const Round&, StageLinks*, InFlight&, bool evaluating = false) const;
  static void wait_transfers(std::vector<size_t>& in_flight, StageLinks*);

  Backend* backend_;
  const Graph* graph_;
  PipelinePlan plan_;
  std::vector<Task> tasks_;
  std::vector<Round> rounds_;
  std::vector<int> slots_;  // by chunk
  std::vector<ModelChunk> chunks_;
  DeviceMemory saved_, scratch_;
  Trace* trace_ = nullptr;
};

}  // namespace bv

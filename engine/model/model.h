// A model on a device as training and evaluation see it: the whole model (WholeModel), a stage of a
// pipeline (PipelinedModel), or the same model in two precisions (TwoPrecisions). It plans its
// memory but doesn't own it. All calls enqueue on stream 0 and on streams forked from it.
#pragma once
#include <functional>
#include <span>

#include "engine/model/channel.h"
#include "engine/model/feed.h"
#include "engine/model/model_chunk.h"
#include "engine/trace/trace.h"

namespace bv {

// train() calls these in an update's last backward; either may be empty.
struct BackwardCallbacks {
  std::function<void()> begins;             // the last micro-batch's forward is enqueued
  std::function<void(size_t ready)> ready;  // gradients [0, ready) of the arena are final
};

class Model {
 public:
  virtual ~Model() = default;
  virtual const Graph& graph() const = 0;
  // Bytes of the memory that use() takes; call use() before any pass.
  virtual size_t saved_bytes() const = 0;
  virtual size_t scratch_bytes() const = 0;
  virtual void use(char* saved, char* scratch) = 0;

  // Called once per batch, before its passes: a pipeline's stages share the labels of all
  // micro-batches. first: the first micro-batch's context.
  virtual void share_batch(const Feed&, const Context& /*first*/) {}
  // Forward and backward of all micro-batches; each has a context with parameters and batch.
  virtual void train(std::span<const Context> micro_batches, const BackwardCallbacks&) = 0;
  // Forward of micro-batch `micro`.
  virtual void evaluate(const Context&, int micro) = 0;

  virtual bool computes_loss() const { return true; }  // false: another process computes it
  virtual const ModelChunk& last_chunk() const = 0;    // the last one of this process
  // Connects the processes that each hold a part of the model; null: this one holds all of it.
  virtual const Channel* stage_channel() const { return nullptr; }
  virtual void profile(Profile*) = 0;
  virtual void trace(Trace*) = 0;
};

}  // namespace bv

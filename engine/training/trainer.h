// A model that trains: micro-steps (forward and backward of one batch), updates (reduce over the
// replicas, norm, clip, optimizer) and evaluation, on any backend. Everything is planned and
// allocated before the first step, and what changes from step to step goes through StepParams, so
// that a device may record a micro-step and an update once and replay them. The host waits for the
// device only where a comment says so.
#pragma once
#include <cstdint>
#include <memory>
#include <utility>

#include "engine/training/feed.h"
#include "engine/training/model.h"

namespace bv {

struct TrainerOptions {
  OptimizerOptions optimizer;
  int local_batch;      // images of a micro-step in this process
  int height, width;    // of stored images
  int accumulate;       // micro-steps of a full update
  size_t bucket_bytes;  // of gradients, at most, that are reduced at once during backward
  LossScaling scaling;
  bool recompute = false;       // of blocks
  bool sync_batchnorm = false;  // over the batches of all replicas
  uint64_t seed;
};

struct EvaluationSums {
  double loss = 0, count = 0, top1 = 0, top5 = 0;
};

class Trainer {
 public:
  // The communicator connects the replicas; null: there is one. Plans; allocate() takes the memory.
  Trainer(Backend&, Communicator*, const Graph&, const TrainerOptions&);
  const MemoryPlan& plan() const { return plan_; }
  const Layout& layout() const { return model_.stage().layout(); }
  void allocate();

  Parameters& parameters() { return parameters_; }
  // The device's UpdateState, for checkpoints. Both wait for the device.
  UpdateState state() const { return optimizer_.state(); }
  void set_state(const UpdateState& state) { optimizer_.set_state(state); }

  struct MicroStep {
    int64_t epoch;
    bool first, last;  // of its update
    bool stop;         // this process was asked to stop
  };
  // The batch is read until wait_for_upload() returns.
  void micro_step(const Batch&, const MicroStep&);
  void wait_for_upload() { feed_.wait_for_upload(); }
  // images: trained on in this update, by all replicas. finish_update() waits for the result and
  // must be called before the next update starts: on a device that runs ahead of the host, best
  // after the next update's micro-steps have been issued.
  void start_update(double lr, int64_t images);
  UpdateResult finish_update();
  bool runs_ahead() const { return backend_->upload_stream() != nullptr; }
  // Model::graph_nodes
  std::pair<int, int> graph_nodes() const { return model_.graph_nodes(); }

  // Adds a batch to the evaluation that begin_evaluation started.
  void begin_evaluation();
  void evaluate(const Batch&);
  EvaluationSums end_evaluation();  // over all replicas; waits for the device

  void profile(Profile* to) { model_.profile(to); }

 private:
  static constexpr size_t sums_bytes = 4 * sizeof(double);
  double full_update() const;  // images of a full update, of all replicas

  Backend* backend_;
  Communicator* communicator_;
  TrainerOptions options_;
  Parameters parameters_;
  Feed feed_;
  Optimizer optimizer_;
  std::unique_ptr<GradientSync> sync_;  // null: one replica
  Model model_;
  MemoryPlan plan_;
  DeviceMemory sums_;  // of the evaluation
  StepParams params_{};
  Event updated_;
};

}  // namespace bv

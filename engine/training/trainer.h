// A model that trains: micro-steps (forward and backward of one batch), updates and evaluation.
// Everything is planned and allocated before the first step, and what changes from step to step
// goes through StepParams, so that a device may record a micro-step and an update once and replay
// them. The host waits for the device only where a comment says so.
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "engine/inference/evaluation_sums.h"
#include "engine/inference/outputs.h"
#include "engine/trace/trace.h"
#include "engine/training/feed.h"
#include "engine/training/gradient_sync.h"
#include "engine/training/optimizer.h"
#include "engine/training/stage.h"

namespace bv {

struct TrainerOptions {
  OptimizerUpdate optimizer;  // its kind and numbers, no memory; ema_rate 0: no average
  bool decay_all = false;     // not weights alone
  double layer_decay = 1;     // of the learning rate, from layer to layer below the head
  int local_batch;            // images of a micro-step in this process
  int height, width;          // of the largest stored images
  int augment_layers = 0;     // ImageOps of each training image
  bool mixing = false;        // training images are mixed in pairs
  int accumulate;             // micro-steps of a full update
  SyncOptions sync;           // of the replicas
  bool recompute = false;     // of blocks
  uint64_t seed;
};

class Trainer {
 public:
  // The communicator connects the replicas; null: there is one. Plans; allocate() takes the memory.
  Trainer(Backend&, Communicator*, const Graph&, const TrainerOptions&);
  const MemoryPlan& plan() const { return plan_; }
  const Layout& layout() const { return stage_.layout(); }
  size_t gradient_buckets() const { return sync_ ? sync_->bucket_count() : 0; }
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
  // Nodes of the recorded graphs: of a micro-step (the largest) and of the update; 0 without one.
  std::pair<int, int> graph_nodes() const;

  // averaged: of the weights' moving average instead of the weights. each_image: what the model
  // says of each is brought to the host as well.
  void begin_evaluation(bool averaged = false, bool each_image = false);
  void evaluate(const Batch&);
  EvaluationSums end_evaluation();  // over all replicas; waits for the device
  // Of the last evaluation, in rank 0's process, if it was to bring them: of all replicas' images
  // that could be read, in the data set's order.
  const std::vector<Prediction>& predictions() const { return predictions_; }

  void profile(Profile*);
  void trace(Trace*);  // before the first step

 private:
  double full_update() const;  // images of a full update, of all replicas
  void play(std::unique_ptr<Recording>&, std::function<void()> issue);
  void compute_with(const float* weights);  // until it is called with the weights again

  Backend* backend_;
  const Graph* graph_;
  Communicator* communicator_;
  TrainerOptions options_;
  Parameters parameters_;
  Feed feed_;
  Optimizer optimizer_;
  std::unique_ptr<GradientSync> sync_;  // null: one replica
  Stage stage_;
  MemoryPlan plan_;
  DeviceSums sums_;  // of the evaluation
  Outputs outputs_;
  std::vector<Prediction> predictions_;
  bool each_image_ = false;  // what is being evaluated has predictions
  Context context_;          // of every step
  StepParams params_{};
  Event updated_;
  std::array<std::unique_ptr<Recording>, 4> micro_steps_;  // by first + 2 last
  std::unique_ptr<Recording> update_;
  std::array<std::unique_ptr<Recording>, 2> evaluations_;  // of the weights, of their average
  bool averaged_ = false;                                  // what is being evaluated
  Profile* profile_ = nullptr;
  Trace* trace_ = nullptr;
};

}  // namespace bv

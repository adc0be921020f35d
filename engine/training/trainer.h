// A model, or this process's part of it, that trains: micro-steps (forward and backward of one
// batch, in one micro-batch or several), updates and evaluation. Everything is planned and
// allocated before the first step, and what changes from step to step goes through StepParams, so
// that a device may record a whole step once, from its last micro-step's forward to its update, and
// replay it. The host waits for the device only where a comment says so.
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <memory>

#include "engine/inference/evaluation_sums.h"
#include "engine/inference/outputs.h"
#include "engine/model/feed.h"
#include "engine/pipeline/gather.h"
#include "engine/trace/trace.h"
#include "engine/training/gradient_sync.h"
#include "engine/training/optimizer.h"

namespace bv {

struct TrainerOptions {
  OptimizerUpdate optimizer;  // its kind and numbers, no memory; ema_rate 0: no average
  bool decay_all = false;     // not weights alone
  double layer_decay = 1;     // of the learning rate, from layer to layer below the head
  int local_batch;            // images of a micro-step in this replica
  int height, width;          // of the largest stored images
  int augment_layers = 0;     // ImageOps of each training image
  bool mixing = false;        // training images are mixed in pairs
  int accumulate;             // micro-steps of a full update
  SyncOptions sync;           // of the replicas
  bool recompute = false;     // of blocks
  uint64_t seed;
  PipelinePlan pipeline = {};  // the graph's batch is a micro-batch
};

class Trainer {
 public:
  // The communicator connects all processes; null: there is one, or only the plan is wanted. The
  // graph is laid out for this process's part of it. fp32: the same model, of a graph in 16 bits,
  // for the steps that compute_in(fp32). Plans; allocate() takes the memory.
  Trainer(Backend&, Communicator*, const Graph&, const TrainerOptions&,
          const Graph* fp32 = nullptr);
  const MemoryPlan& plan() const { return plan_; }
  // With two precisions: the larger model's plan; the other one fits into its memory.
  const Graph& largest_graph() const { return largest().graph(); }
  const Layout& largest_layout() const { return largest().last_chunk().layout(); }
  size_t gradient_buckets() const { return sync_ ? sync_->bucket_count() : 0; }
  void allocate();

  Parameters& parameters() { return parameters_; }  // of this process's part
  const Parameters& parameters() const { return parameters_; }
  // The whole model's, by name, on rank 0; elsewhere nothing. All processes call it, between
  // updates; the gradients are lost.
  struct Saved {
    Tensors weights, ema, moments;
  };
  Saved saved();
  bool whole() const { return !links_.stages; }  // this process has all of the model
  // Name of the model's first parameter whose gradient is not finite, or empty. All processes call
  // it.
  std::string first_not_finite() const;
  // The device's UpdateState, for checkpoints; its loss scale is that of 16 bits, also while fp32
  // computes. Both wait for the device.
  UpdateState state() const;
  void set_state(const UpdateState&);

  // What the following steps and evaluations compute in: the graph's dtype, as at first, or fp32.
  // Between updates; waits for the device.
  void compute_in(DType);
  DType dtype() const { return now_->part.graph().dtype(); }

  struct MicroStep {
    int64_t epoch;
    bool first, last;  // of its update
    bool stop;         // this process was asked to stop
  };
  // The batch is read until wait_for_upload() returns. The last one is computed with the update.
  void micro_step(const Batch&, const MicroStep&);
  void wait_for_upload() { feed_.wait_for_upload(); }
  // images: trained on in this update, by all replicas. finish_update() waits for the result of the
  // first update that isn't finished; there may be two: on a device that runs ahead of the host,
  // one is best finished when the next has started.
  void start_update(double lr, int64_t images);
  UpdateResult finish_update();
  bool runs_ahead() const { return backend_->upload_stream() != nullptr; }
  int graph_nodes() const;  // of the recorded step; 0 without one

  // averaged: of the weights' moving average instead of the weights. each_image: what the model
  // says of each is brought to the host as well.
  void begin_evaluation(bool averaged = false, bool each_image = false);
  void evaluate(const Batch&);
  EvaluationSums end_evaluation();  // over all replicas; waits for the device
  void abandon_evaluation();        // instead; without predictions
  // Of the last evaluation, in rank 0's process, if it was to bring them: of all replicas' images
  // that could be read, in the data set's order.
  const std::vector<Prediction>& predictions() const { return predictions_; }

  void profile(Profile*);
  void trace(Trace*);  // before the first step

 private:
  struct Links {
    std::unique_ptr<Communicator> own_replicas;
    Communicator* replicas = nullptr;    // null: one
    std::unique_ptr<StageLinks> stages;  // null: the model is whole
  };
  static Links connect(Backend&, Communicator*, const Grid&);
  static std::unique_ptr<GradientSync> sync_of(Backend&, const Parameters&, const Links&,
                                               SyncOptions);
  // A model with its recordings. Both models have the same parameters and share their memory.
  struct Model {
    ModelPart part;
    // Indexed by whether the micro-step begins its update. `updates`: the last micro-step with the
    // update; micro_steps: those before it.
    std::array<std::unique_ptr<Recording>, 2> micro_steps = {}, updates = {};
    // By micro-batch: of the weights, of their average.
    std::vector<std::array<std::unique_ptr<Recording>, 2>> evaluations = {};
  };
  static std::vector<Model> models_of(Backend&, const Graph&, const Graph* fp32,
                                      const TrainerOptions&);
  const ModelPart& largest() const;
  double full_update() const;  // images of a full update, of all replicas
  // Of micro-batch `micro` of a batch that begins at `position` and has `count` images.
  StepParams params_of(const Batch&, const MicroStep&, int micro) const;
  Context context_of(int micro) const;
  void send_targets() const;  // from the pipeline's first stage to its last
  void compute_gradients(bool first, bool last);
  void update();
  void profile_parts(Profile*);
  void play(std::unique_ptr<Recording>&, std::function<void()> issue);
  void compute_with(const float* weights);  // until it is called with the weights again

  Backend* backend_;
  Communicator* communicator_;
  TrainerOptions options_;
  Links links_;
  Parameters parameters_;
  Feed feed_;
  Optimizer optimizer_;
  std::unique_ptr<GradientSync> sync_;  // null: one replica
  std::vector<Model> models_;           // of the graph and, where there is one, in fp32
  Model* now_;
  UpdateState sixteen_bits_{};  // its loss_scale and good_steps are, while fp32 computes
  MemoryPlan plan_;
  DeviceSums sums_;  // of the evaluation
  Outputs outputs_;
  std::vector<Prediction> predictions_;
  bool each_image_ = false;             // what is being evaluated has predictions
  Context context_;                     // of every step
  std::vector<StepParams> params_;      // of each micro-batch
  bool first_ = true;                   // the last micro-step begins its update
  std::array<Event, 2> updated_{};      // by turn
  int64_t started_ = 0, finished_ = 0;  // updates
  bool averaged_ = false;               // what is being evaluated
  Profile* profile_ = nullptr;
  Trace* trace_ = nullptr;
};

}  // namespace bv

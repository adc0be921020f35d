// A model, or this process's part of it, in training: parameters, update, step (step.h), evaluation
// and the state for checkpoints. The constructor plans everything; memory is allocated before the
// first step.
#pragma once
#include <cstdint>
#include <memory>

#include "engine/inference/evaluator.h"
#include "engine/model/two_precisions.h"
#include "engine/pipeline/gather.h"
#include "engine/training/step.h"

namespace bv {

struct TrainerOptions {
  OptimizerUpdate optimizer;  // kind and hyperparameters, no memory; ema_rate 0: no average
  LossScaling scaling = {};   // in fp16
  bool decay_all = false;     // decay biases and norms, too
  double layer_decay = 1;     // factor of the learning rate per layer below the head
  int local_batch;            // images per micro-step in this replica
  int height, width;          // largest stored image
  int augment_layers = 0;     // ImageOps per training image
  bool mixing = false;        // training images are mixed in pairs
  int accumulate;             // micro-steps per full update
  SyncOptions sync;           // between the replicas
  bool recompute = false;     // --recompute blocks
  uint64_t seed;
  PipelinePlan pipeline = {};  // the graph's batch is a micro-batch
};

class Trainer {
 public:
  // The communicator connects all processes; null: one process, or only the plan is needed. The
  // graph is laid out for this process's part of it. fp32: given with a 16-bit graph, the same
  // model for the steps after compute_in(fp32).
  Trainer(Backend&, Communicator*, const Graph&, const TrainerOptions&,
          const Graph* fp32 = nullptr);
  const MemoryPlan& plan() const { return plan_; }
  // The last chunk of the model or, with two precisions, of the model that needs more memory.
  const ModelChunk& largest_chunk() const {
    return (precisions_ ? precisions_->largest() : *model_).last_chunk();
  }
  size_t gradient_buckets() const { return sync_ ? sync_->bucket_count() : 0; }
  void allocate();

  TrainingStep& step() { return step_; }
  void wait_for_upload() { feed_.wait_for_upload(); }  // of a step's or an evaluation's batch

  Parameters& parameters() { return parameters_; }  // of this process's part
  const Parameters& parameters() const { return parameters_; }
  // Enqueues copies of the arenas to `to`, which must live until they are done. With --zero 1 all
  // processes must call it between updates, `to` empty except on rank 0; it overwrites gradients.
  void copy_to(const ParameterCopy& to) const;
  bool in_parts() const { return sync_ && sync_->in_parts(); }  // --zero 1 with several replicas
  // The whole model's tensors by name, on rank 0; elsewhere nothing. Called by all processes
  // between updates; overwrites the gradients.
  struct Saved {
    Tensors weights, ema, moments;
  };
  Saved saved();
  bool whole() const { return !links_.stages; }  // this process has the whole model
  // Name of the model's first parameter whose gradient is not finite, or empty. Called by all
  // processes.
  std::string first_not_finite() const;
  // The device's UpdateState, for checkpoints. After compute_in(fp32) its loss scale is still that
  // of 16 bits. Both functions wait for the device.
  UpdateState state() const;
  void set_state(const UpdateState&);

  // Sets the precision of the following steps and evaluations: the graph's dtype (initially) or
  // fp32. Called between updates; waits for the device.
  void compute_in(DType);
  DType dtype() const { return model_->graph().dtype(); }

  // averaged: evaluates the weights' moving average; with --zero 1 this may overwrite the
  // gradients. each_image: also copies the prediction for each image to the host.
  void begin_evaluation(bool averaged = false, bool each_image = false);
  void evaluate(const Batch& batch) { evaluator_.run(batch); }
  EvaluationSums end_evaluation();  // over all replicas; waits for the device
  void abandon_evaluation();        // instead of end_evaluation(); no predictions
  // The last evaluation's predictions, if it had each_image: on rank 0, for all replicas' images
  // that could be read, in the data set's order.
  const std::vector<Prediction>& predictions() const { return predictions_; }

  void profile(Profile*);
  void trace(Trace*);  // before the first step

 private:
  struct Links {
    int replica = 0, count = 1;  // this replica's number, and how many there are
    std::unique_ptr<Communicator> own_replicas;
    Communicator* replicas = nullptr;    // null: one replica
    std::unique_ptr<StageLinks> stages;  // null: the model is whole
  };
  static Links connect(Backend&, Communicator*, const Grid&);
  static std::unique_ptr<GradientSync> sync_of(Backend&, const Parameters&, const Links&,
                                               SyncOptions);
  std::unique_ptr<Model> make_model(const Graph&, const Graph* fp32, const TrainerOptions&);
  bool in_second_precision() const { return precisions_ && dtype() == DType::fp32; }
  // Makes passes compute with weights() or ema(); after ema(), call it again with weights().
  // Returns the master weights for Parameters::context().
  float* compute_with(float* kept);
  // The whole arena of m, v, ema or weights; with --zero 1 gathered in the gradients' memory.
  float* whole(float* kept) const;

  Backend* backend_;
  Communicator* communicator_;
  PipelinePlan pipeline_;
  Links links_;
  Parameters parameters_;
  Feed feed_;
  Optimizer optimizer_;
  std::unique_ptr<GradientSync> sync_;   // null: one replica, one shard
  TwoPrecisions* precisions_ = nullptr;  // model_, if it has two precisions
  std::unique_ptr<Model> model_;
  MemoryPlan plan_;
  DeviceMemory saved_, scratch_;
  TrainingStep step_;
  Evaluator evaluator_;
  UpdateState sixteen_bits_{};  // loss_scale and good_steps to restore after fp32
  bool averaged_ = false;       // whether the average is being evaluated
  bool each_image_ = false;     // whether it predicts each image
  std::vector<Prediction> predictions_;
};

}  // namespace bv

// A model, or this process's part of it, that trains: its parameters, their update, the step
// (step.h), evaluation, and what a checkpoint saves. Everything is planned by the constructor and
// allocated before the first step.
#pragma once
#include <cstdint>
#include <memory>

#include "engine/inference/evaluator.h"
#include "engine/model/two_precisions.h"
#include "engine/pipeline/gather.h"
#include "engine/training/step.h"

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
  // for the steps that compute_in(fp32).
  Trainer(Backend&, Communicator*, const Graph&, const TrainerOptions&,
          const Graph* fp32 = nullptr);
  const MemoryPlan& plan() const { return plan_; }
  // With two precisions: the larger model's plan; the other one fits into its memory.
  const ModelChunk& largest_chunk() const {
    return (precisions_ ? precisions_->largest() : *model_).last_chunk();
  }
  size_t gradient_buckets() const { return sync_ ? sync_->bucket_count() : 0; }
  void allocate();

  TrainingStep& step() { return step_; }
  void wait_for_upload() { feed_.wait_for_upload(); }  // of a step's or an evaluation's batch

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

  // The precision of the following steps and evaluations: the graph's dtype, as at first, or fp32.
  // Between updates; waits for the device.
  void compute_in(DType);
  DType dtype() const { return model_->graph().dtype(); }

  // averaged: of the weights' moving average instead of the weights. each_image: what the model
  // says of each is brought to the host as well.
  void begin_evaluation(bool averaged = false, bool each_image = false);
  void evaluate(const Batch& batch) { evaluator_.run(batch); }
  EvaluationSums end_evaluation();  // over all replicas; waits for the device
  void abandon_evaluation();        // instead; without predictions
  // The last evaluation's, in rank 0's process, if it was to bring them: for all replicas' images
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
  std::unique_ptr<Model> make_model(const Graph&, const Graph* fp32, const TrainerOptions&);
  bool in_second_precision() const { return precisions_ && dtype() == DType::fp32; }
  void compute_with(const float* weights);  // until it is called with the weights again

  Backend* backend_;
  Communicator* communicator_;
  PipelinePlan pipeline_;
  Links links_;
  Parameters parameters_;
  Feed feed_;
  Optimizer optimizer_;
  std::unique_ptr<GradientSync> sync_;   // null: one replica
  TwoPrecisions* precisions_ = nullptr;  // the model, where it has two
  std::unique_ptr<Model> model_;
  MemoryPlan plan_;
  DeviceMemory saved_, scratch_;
  TrainingStep step_;
  Evaluator evaluator_;
  UpdateState sixteen_bits_{};  // its loss_scale and good_steps are, while fp32 computes
  bool averaged_ = false;       // whether the average is being evaluated
  bool each_image_ = false;     // and has predictions
  std::vector<Prediction> predictions_;
};

}  // namespace bv

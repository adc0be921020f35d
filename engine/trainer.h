// A model that trains: micro-steps (forward and backward of one batch), updates (reduce over the
// processes, norm, clip, optimizer) and evaluation, on any backend. Everything is planned and
// allocated before the first step; what changes from step to step goes through StepParams.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/loader.h"
#include "engine/parameters.h"
#include "engine/stage.h"

namespace bv {

struct OptimizerOptions {
  OptimizerKind kind;
  float momentum;
  double beta1, beta2;
  float eps, weight_decay, clip;
  bool nesterov, decay_all;
};

struct TrainerOptions {
  OptimizerOptions optimizer;
  int local_batch;      // images of a micro-step in this process
  int height, width;    // of stored pictures
  int accumulate;       // micro-steps of a full update
  size_t bucket_bytes;  // of gradients, reduced while backward goes on
  uint64_t seed;
};

// What an update came to, over all processes.
struct UpdateResult {
  double loss_sum = 0, count = 0;  // of the images trained on
  float grad_norm = 0;             // before clipping
  bool skipped = false;            // the gradient was not finite; nothing was updated
  bool stop = false;               // some process was asked to stop
};

struct EvaluationSums {
  double loss = 0, count = 0, top1 = 0, top5 = 0;
};

class Trainer {
 public:
  // `communicator` may be null (one process). Plans; allocate() takes the memory.
  Trainer(Backend&, Communicator*, const Graph&, const TrainerOptions&);
  const MemoryPlan& plan() const { return plan_; }
  const Layout& layout() const { return stage_.layout(); }
  void allocate();

  Parameters& parameters() { return parameters_; }
  // The device's UpdateState, for checkpoints. Settings take effect at once.
  UpdateState state() const;
  void set_state(const UpdateState&);

  struct MicroStep {
    int64_t epoch;
    bool first, last;  // of its update
    bool stop;         // this process was asked to stop
  };
  void micro_step(const Batch&, const MicroStep&);
  // images: trained on in this update, over all processes.
  UpdateResult update(double lr, int64_t images);

  // Adds a batch to the evaluation that begin_evaluation started.
  void begin_evaluation();
  void evaluate(const Batch&);
  EvaluationSums end_evaluation();  // over all processes

  void profile(Profile* to);

 private:
  struct Bucket {
    size_t begin, end;  // elements of the gradient arena
  };
  void upload(const Batch&);
  Run run() const;
  void reduce_ready(size_t ready);

  Backend* backend_;
  Communicator* communicator_;
  const Graph* graph_;
  TrainerOptions options_;
  Stage stage_;
  Parameters parameters_;
  MemoryPlan plan_;
  std::vector<Bucket> buckets_;
  size_t next_bucket_ = 0;
  Event ready_, reduced_;

  // Batch and small things, in one piece of device memory.
  DeviceMemory small_;
  struct Small {
    size_t images, crops, labels, params, state, sums, decay, workspace, bytes;
  } at_{};
  StepParams params_{};
  Profile* profile_ = nullptr;
};

}  // namespace bv

// A model that trains: micro-steps (forward and backward of one batch), updates (reduce over the
// processes, norm, clip, optimizer) and evaluation, on any backend. Everything is planned and
// allocated before the first step; what changes from step to step goes through StepParams, so that a
// device may record a micro-step and an update once and repeat them. Nothing here makes the host
// wait for a device but what says so.
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "data/loader.h"
#include "engine/training/parameters.h"
#include "engine/training/stage.h"

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
  LossScaling scaling;
  bool recompute = false;       // of blocks
  bool sync_batchnorm = false;  // its statistics are over the batches of all processes
  uint64_t seed;
};

// What an update came to, over all processes.
struct UpdateResult {
  double loss_sum = 0, count = 0;  // of the images trained on
  float grad_norm = 0;             // before clipping
  bool skipped = false;            // the gradient was not finite; nothing was updated
  int skipped_in_a_row = 0;
  float loss_scale = 1;  // that the next step uses
  bool stop = false;     // some process was asked to stop
};

struct EvaluationSums {
  double loss = 0, count = 0, top1 = 0, top5 = 0;
};

class Trainer {
 public:
  // `communicator` may be null (one process). Plans; allocate() takes the memory.
  Trainer(Backend&, Communicator*, const Graph&, const TrainerOptions&);
  ~Trainer();
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
  // The batch is read until wait_for_upload() returns.
  void micro_step(const Batch&, const MicroStep&);
  void wait_for_upload();
  // images: trained on in this update, over all processes. Its result has to be fetched by
  // finish_update(), which waits for it, before the next update starts; on a device that computes
  // while the host goes on (runs_ahead), best after that one's micro-steps are under way.
  void start_update(double lr, int64_t images);
  UpdateResult finish_update();
  bool runs_ahead() const { return backend_->upload_stream() != nullptr; }
  // Of the recorded graphs of a micro-step (the largest) and of an update: nodes, 0 without one.
  std::pair<int, int> graph_nodes() const;

  // Adds a batch to the evaluation that begin_evaluation started.
  void begin_evaluation();
  void evaluate(const Batch&);
  EvaluationSums end_evaluation();  // over all processes

  void profile(Profile* to);

 private:
  struct Bucket {
    size_t begin, end;  // elements of the gradient arena
  };
  // The batch as the model reads it. With an upload stream, batches come in through two others in
  // turn, so that one is on its way while the one before is trained on.
  struct BatchPlace {
    size_t images, crops, labels;
  };
  // What the host writes for the device to read later, and the other way round.
  struct HostBlock;

  void upload(const Batch&);
  void copy_batch(const Batch& from, const BatchPlace& to, Stream);
  void set_params();
  size_t params_in_flight() const;
  Context run() const;
  void play(std::unique_ptr<Recording>&, std::function<void()> issue);
  void issue_micro_step(bool first, bool last);
  void issue_update();
  void reduce_ready(size_t ready);
  void sum_buffers();
  template <class T>
  T* small(size_t at) const {
    return reinterpret_cast<T*>(small_.data() + at);
  }

  Backend* backend_;
  Communicator* communicator_;
  const Graph* graph_;
  TrainerOptions options_;
  Stage stage_;
  Parameters parameters_;
  MemoryPlan plan_;
  class TrainingPeers;
  std::unique_ptr<Peers> peers_;
  std::vector<Bucket> buckets_;
  size_t next_bucket_ = 0;
  Event ready_, reduced_, updated_;

  std::array<std::unique_ptr<Recording>, 4> micro_steps_;  // by first + 2 last
  std::unique_ptr<Recording> update_, evaluation_;

  // Batch and small things, in one piece of device memory.
  DeviceMemory small_;
  struct Small {
    BatchPlace batch, incoming[2];
    size_t params, state, sums, decay, workspace, bytes;
  } at_{};
  Event uploaded_[2], consumed_[2];
  int uploads_ = 0;

  StepParams params_{};
  std::shared_ptr<HostBlock> host_;
  size_t params_written_ = 0;
  Profile* profile_ = nullptr;
};

}  // namespace bv

// The training step in order: upload, step parameters, forward and loss, backward overlapped with
// the reduction, update, result. All memory is allocated before the first step. Values that change
// from step to step are passed in StepParams, so that a device can record and replay two pieces of
// work: the passes of a micro-step, and the passes of an update's last micro-step with the update,
// each in two forms, as an update's first micro-step overwrites the gradients. The host waits for
// the device only in Feed::wait_for_upload(), which the loop calls, and in finish_update().
#pragma once
#include <array>
#include <cstdint>
#include <vector>

#include "engine/model/model.h"
#include "engine/model/recorded_work.h"
#include "engine/training/gradient_sync.h"
#include "engine/training/optimizer.h"

namespace bv {

struct MicroStep {
  int64_t epoch;
  bool first, last;   // of its update
  bool stop;          // this process was asked to stop
  bool save = false;  // rank 0 asks for a checkpoint; only in an update's last micro-step
};

class TrainingStep {
 public:
  struct Parts {
    Backend& backend;
    const Parameters& parameters;  // const: the arenas' addresses; their contents change
    Feed& feed;
    Model& model;
    Optimizer& optimizer;
    GradientSync* sync;  // null: one replica, one shard
  };
  struct Sizes {
    int batch;  // images per micro-step in this replica
    int micro_batches, accumulate;
    int replicas;
    uint64_t seed;
  };
  TrainingStep(const Parts&, const Sizes&);

  // Reads the batch until Feed::wait_for_upload() returns. An update's last micro-step is only
  // uploaded here; start_update() must follow and computes it.
  void micro_step(const Batch&, const MicroStep&);
  // images: number trained on in this update, by all replicas.
  void start_update(double lr, int64_t images);
  // Waits for the result of the oldest unfinished update. There may be two: on a device that runs
  // ahead of the host, finish an update after starting the next.
  UpdateResult finish_update();
  bool runs_ahead() const { return parts_.backend.upload_stream() != nullptr; }
  int graph_nodes() const { return recorded_.largest(); }  // of the largest CUDA graph; 0: none

  void profile(Profile*);
  void trace(Trace* to) { trace_ = to; }  // before the first step

 private:
  double full_update() const;  // images of a full update, over all replicas
  StepParams params_of(const Batch&, const MicroStep&, int micro) const;
  void send_params() { parts_.feed.set_params(params_); }
  std::vector<Context> contexts(bool first) const;
  void compute_gradients(bool first, bool last);
  void update();

  Parts parts_;
  Sizes sizes_;
  RecordedWork recorded_;
  std::vector<StepParams> params_;      // of each micro-batch
  bool first_ = true;                   // whether the last micro-step began its update
  std::array<Event, 2> updated_{};      // by turn
  int64_t started_ = 0, finished_ = 0;  // updates
  Profile* profile_ = nullptr;
  Trace* trace_ = nullptr;
};

}  // namespace bv

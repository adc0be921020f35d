// The training step, in the order of time: upload, parameters of the step, forward and loss,
// backward with the reduction behind it, update, result. Everything is allocated before the first
// one, and what changes from step to step goes through StepParams, so that a device may record two
// pieces of work and replay them: the passes of a micro-step, and the passes of the last one with
// the update. The host waits for the device in Feed::wait_for_upload() and finish_update().
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
  bool first, last;  // of its update
  bool stop;         // this process was asked to stop
};

class TrainingStep {
 public:
  struct Parts {
    Backend& backend;
    const Parameters& parameters;
    Feed& feed;
    Model& model;
    Optimizer& optimizer;
    GradientSync* sync;  // null: one replica
  };
  struct Sizes {
    int batch;  // images of a micro-step in this replica
    int micro_batches, accumulate;
    int replicas;
    uint64_t seed;
  };
  TrainingStep(const Parts&, const Sizes&);

  // The batch is read until Feed::wait_for_upload() returns. The last micro-step of an update is
  // only uploaded here: start_update() follows and computes it.
  void micro_step(const Batch&, const MicroStep&);
  // images: trained on in this update, by all replicas.
  void start_update(double lr, int64_t images);
  // Waits for the result of the first update that isn't finished; there may be two: on a device
  // that runs ahead of the host, one is best finished when the next has started.
  UpdateResult finish_update();
  bool runs_ahead() const { return parts_.backend.upload_stream() != nullptr; }
  int graph_nodes() const { return recorded_.largest(); }  // of the recorded step; 0 without one

  void profile(Profile*);
  void trace(Trace* to) { trace_ = to; }  // before the first step

 private:
  double full_update() const;  // images of a full update, of all replicas
  StepParams params_of(const Batch&, const MicroStep&, int micro) const;
  void send_params() { parts_.feed.set_params(params_); }
  std::vector<Context> contexts(bool first) const;
  void compute_gradients(bool first, bool last);
  void update();

  Parts parts_;
  Sizes sizes_;
  RecordedWork recorded_;
  std::vector<StepParams> params_;      // of each micro-batch
  bool first_ = true;                   // the last micro-step begins its update
  std::array<Event, 2> updated_{};      // by turn
  int64_t started_ = 0, finished_ = 0;  // updates
  Profile* profile_ = nullptr;
  Trace* trace_ = nullptr;
};

}  // namespace bv

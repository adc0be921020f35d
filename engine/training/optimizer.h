// The update: gradient norm, clipping and the step of all parameters, controlled on the device by
// the UpdateState there.
#pragma once
#include <memory>

#include "engine/model/channel.h"
#include "engine/model/memory.h"
#include "engine/model/parameters.h"
#include "engine/trace/trace.h"

namespace bv {

// The outcome of an update, summed over all replicas.
struct UpdateResult {
  double loss_sum = 0, count = 0;  // of the images trained on
  double top1 = 0;                 // images whose own label has the largest logit
  float grad_norm = 0;             // before clipping
  bool skipped = false;            // the gradient was not finite; nothing was updated
  int skipped_in_a_row = 0;
  float loss_scale = 1;  // for the next step
  bool stop = false;     // a process was asked to stop
  bool save = false;     // rank 0 asked for a checkpoint
};

class Optimizer {
 public:
  // update: kind and hyperparameters; memory and size are filled in here. decay_all: every
  // parameter decays. layer_decay: multiplies the rate once per layer below the head; 1: no effect.
  Optimizer(Backend&, const Parameters&, const OptimizerUpdate& update, const LossScaling&,
            bool decay_all, double layer_decay);
  size_t bytes() const { return state_bytes + decay_bytes_ + scale_bytes_ + squares_bytes_; }
  void allocate();

  UpdateState* device_state() const { return memory_.data<UpdateState>(); }
  UpdateState state() const;
  void set_state(const UpdateState&);

  // Channels to the processes that have the other parts of the gradient; null: there are none.
  struct Parts {
    const Channel* replicas = nullptr;  // with --zero 1; all have the tail's sums
    const Channel* stages = nullptr;    // of a pipeline; the tail is summed over them, too
  };
  // Updates the parameters that this process keeps. dtype: of the computation; only fp16 changes
  // the loss scale.
  void run(const StepParams*, DType, const Parts&);
  // Copies the result to the host, which has room for two. turn: 0 or 1, alternating.
  void send_result(int turn) const;
  UpdateResult result(int turn) const;  // after send_result() is done
  void trace(Trace* to) { trace_ = to; }

 private:
  struct HostBlock {
    UpdateState state;
    float tail[4];
  };
  HostBlock& host(int turn) const { return static_cast<HostBlock*>(host_.get())[turn]; }
  static constexpr size_t state_bytes = align(sizeof(UpdateState));
  // Computes the norm of the whole model's gradient and from it the UpdateState.
  void measure(const StepParams*, DType, const Parts&);
  void update(const Segment&, size_t packed);  // its weights; packed: its place in kept arenas

  Backend* backend_;
  const Parameters* parameters_;
  OptimizerUpdate update_;
  LossScaling scaling_;
  bool decay_all_;
  double layer_decay_;
  size_t decay_bytes_, scale_bytes_, squares_bytes_;
  DeviceMemory memory_;         // state, decay flags, scales, sums of squares by norm block
  std::shared_ptr<void> host_;  // HostBlock[2], by turn
  Trace* trace_ = nullptr;
};

}  // namespace bv

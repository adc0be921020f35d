// The update: norm, clipping and step of all parameters. The device decides, in its UpdateState.
#pragma once
#include <memory>

#include "engine/training/memory.h"
#include "engine/training/parameters.h"

namespace bv {

// The outcome of an update, over all replicas.
struct UpdateResult {
  double loss_sum = 0, count = 0;  // of the images trained on
  double top1 = 0;                 // of them, those whose own label came first
  float grad_norm = 0;             // before clipping
  bool skipped = false;            // the gradient was not finite; nothing was updated
  int skipped_in_a_row = 0;
  float loss_scale = 1;  // for the next step
  bool stop = false;     // some process was asked to stop
};

class Optimizer {
 public:
  // update: its kind and numbers; memory and size are filled in here. decay_all: as decay_flags;
  // layer_decay: as layer_scales, 1: none.
  Optimizer(Backend&, const Parameters&, const OptimizerUpdate& update, bool decay_all,
            double layer_decay);
  size_t bytes() const { return state_bytes + decay_bytes_ + scale_bytes_ + workspace_bytes_; }
  void allocate();

  UpdateState* device_state() const { return memory_.data<UpdateState>(); }
  UpdateState state() const;
  void set_state(const UpdateState&);

  // Updates by the gradients and sends the result to the host. dtype: what computed the gradients;
  // the loss scale is fp16's alone to change.
  void run(const StepParams*, DType);
  UpdateResult result() const;  // once the device has done so

 private:
  struct HostBlock {
    UpdateState state;
    float tail[4];
  };
  static constexpr size_t state_bytes = align(sizeof(UpdateState));

  Backend* backend_;
  const Parameters* parameters_;
  OptimizerUpdate update_;
  bool decay_all_;
  double layer_decay_;
  size_t decay_bytes_, scale_bytes_, workspace_bytes_;
  DeviceMemory memory_;  // state, decay flags, scales, workspace
  std::shared_ptr<void> host_;
};

}  // namespace bv
